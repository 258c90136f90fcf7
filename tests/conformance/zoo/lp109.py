"""Defects that LP109 must catch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import lpkit
import numpy as np
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.arguments import number, tokens
from zoo.bases import Boost, Dense, Simple
from zoo.correct.portable_odd import Chance
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect, sound


@defect("LP109", "looks every row up, also those of requests without the plugin")
class LooksEveryRowUp(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in range(logits.shape[0]) if self.rows else ():
            where, bias = self.rows[row]
            logits[row, where] += bias
        return logits


@defect("LP109", "takes no context", cause="the engine passes other arguments", fix="take what the engine passes")
class TakesNoContext(Boost):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return logits


@defect("LP109", "reads a field that the context does not have, once a request uses it", fix="correct the name")
class MisspelledField(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.values[ctx.expanded_index_mapping]  # type: ignore[attr-defined]
        return logits


@defect(
    "LP109",
    "takes the slots of its requests for their rows",
    cause="is the number of a slot",
    fix="index the logits by rows",
)
class SlotsForRows(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for slot in ctx.idx_mapping.tolist():
            logits[slot, 5] += self.values[slot]
        return logits


@defect("LP109", "a name that was changed in one place only")
class RenamedOnce(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amounts[rows]  # type: ignore[attr-defined]
        return logits


@defect("LP109", "fails in every step, and no case is given that would tell", case={})
class ChanceMistyped(Chance):
    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.threshold  # type: ignore[attr-defined,no-any-return]


@defect(
    "LP109", "adds the output to the engine's prompt", line="history += output_ids", cause="the prompt token list of"
)
class GrowsThePrompt(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            history = prompt_ids
            history += output_ids
            logits[history[-1]] -= amount
            return logits

        return apply


@defect("LP109", "gives back nothing before the first token", line="return", cause="returned None")
class NothingBeforeTheFirst(Simple):
    def make(self, amount: float, params: Any) -> Any:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor | None:
            if not output_ids:
                return None
            logits[5] += amount
            return logits

        return apply


def _lowered(output_ids: list[int], logits: torch.Tensor, *, by: float) -> torch.Tensor:
    logits[5] -= by
    return logits


@defect("LP109", "gives a value by name, which counts as a parameter", cause="`by` is a third parameter")
class GivesByName(V1Base):
    """Takes its callables as vLLM's ``AdapterLogitsProcessor`` does, which counts three parameters."""

    CASE = {"extra_args": {"bias": 2.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        made = self.new_req_logits_processor(params)
        return functools.partial(made, prompt, outputs) if made else None

    def new_req_logits_processor(self, params: Any) -> Any:
        bias = self.read(params)
        return None if bias is None else functools.partial(_lowered, by=bias)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, call in self.rows.items():
            logits[row] = call(logits[row])
        return logits


@defect(
    "LP109", "a default is the third parameter", line="window: int = 4", cause="gets token ids where it expects logits"
)
class DefaultCounts(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def rule(output_ids: list[int], logits: torch.Tensor, window: int = 4) -> torch.Tensor:
            logits[output_ids[-window:]] -= amount
            return logits

        return rule


@defect("LP109", "a default is third, whatever the second is called", line="factor: int = 2", cause="three parameters")
class AnyDefaultCounts(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def rule(past: list[int], row: torch.Tensor, factor: int = 2) -> torch.Tensor:
            row[5] -= amount * factor * (len(past) + 1)
            return row

        return rule


@defect(
    "LP109",
    "the logits have a default, too, and there is no output yet",
    line="row[output_ids[-1]]",
    cause="`output_ids` has 0 entries",
)
class LogitsHaveADefault(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., Any]:
        def rule(prompt_ids: list[int], output_ids: list[int], row: Any = None) -> Any:
            row[output_ids[-1]] -= amount
            return row

        return rule


@defect(
    "LP109",
    "an empty list makes a tensor of floats, which is no index",
    line="torch.tensor(ids, device=",
    cause="`banned` is empty, and made of `ids`; an index tensor must hold integers",
    fix="dtype=torch.long",
)
class EmptyListIsFloat(V1Base):
    CASE = {"extra_args": {"banned": []}}

    @classmethod
    def read(cls, params: Any) -> Any:
        ids = (params.extra_args or {}).get("banned")
        return ids if ids == [] else tokens(params, "banned")

    def tensor(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, device=self.device)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = self.read(params)
        return None if ids is None else (self.tensor(ids),)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (banned,) in self.rows.items():
            logits[row].index_fill_(0, banned, -50.0)
        return logits


@sound("says of which type the tensor of an empty list is", case={"extra_args": {"banned": [5, 9]}})
class EmptyListIsLong(EmptyListIsFloat):
    def tensor(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (banned,) in self.rows.items():
            logits[row, banned] -= 4.0
        return logits


@defect(
    "LP109",
    "keeps more tokens than there are",
    case={"extra_args": {"keep_best": 700}},
    cause="more than the 512 entries of `row`",
    fix="`min(k, logits.shape[-1])`",
)
class KeepsTooMany(V1Base):
    CASE = {"extra_args": {"keep_best": 7}}

    @classmethod
    def read(cls, params: Any) -> Any:
        k = (params.extra_args or {}).get("keep_best")
        if k is not None and (type(k) is not int or not 1 <= k <= 10**6):
            raise ValueError("keep_best must be an integer from 1 to 1000000")
        return k

    def worst(self, row: torch.Tensor, k: int) -> torch.Tensor:
        return row.topk(k).values[-1]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, k in self.rows.items():
            logits[row].masked_fill_(logits[row] < self.worst(logits[row], k), -torch.inf)
        return logits


@sound("keeps at most as many tokens as there are")
class KeepsAtMostAll(KeepsTooMany):
    def worst(self, row: torch.Tensor, k: int) -> torch.Tensor:
        return super().worst(row, min(k, row.shape[-1]))


@defect(
    "LP109",
    "converts the keys of an object in validation only",
    line="in self.pairs(table)",
    cause="`where` is '3'; JSON turns the keys of an object into strings",
    fix="with `int(key)`, in one",
)
class KeysStayText(V1Base):
    CASE = {"extra_args": {"weights": {"3": 2.0}}}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.size = vllm_config.model_config.get_vocab_size()

    @classmethod
    def read(cls, params: Any) -> Any:
        table = (params.extra_args or {}).get("weights")
        if table is not None and (type(table) is not dict or not all(map(str.isdecimal, table))):
            raise ValueError("weights must map token ids to numbers")
        for by in (table or {}).values():
            if type(by) not in (int, float) or not -100 <= by <= 100:
                raise ValueError("weights must map token ids to numbers in [-100, 100]")
        return table or None

    def pairs(self, table: dict[str, float]) -> Iterator[tuple[Any, float]]:
        yield from table.items()

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        table, weights = self.read(params), torch.zeros(self.size, device=self.device)
        for where, by in self.pairs(table) if table else ():
            if where < self.size:
                weights[where] = by
        return None if table is None else (weights,)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weights,) in self.rows.items():
            logits[row, : self.size] += weights
        return logits


@sound("converts the keys of an object where it reads them")
class KeysBecomeNumbers(KeysStayText):
    def pairs(self, table: dict[str, float]) -> Iterator[tuple[Any, float]]:
        return ((int(where), by) for where, by in table.items())


@defect("LP109", "makes room for a row one too late", line="if row > len(self.table)", fix="row >= len(self.table)")
class GrowsTooLate(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table: list[Any] = [None]

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        self.makes_room(len(self.rows))
        self.table[len(self.rows)] = params
        return super().enter(params, prompt, outputs)

    def makes_room(self, row: int) -> None:
        if row > len(self.table):
            self.table.extend([None] * len(self.table))


@defect(
    "LP109", "asks for the limit of the request that came last", line="self.limit = ", state="self.limit", cause="alone"
)
class LastLimit(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        self.limit = state and state[1]
        return state

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, _) in self.rows.items():
            logits[row, where] += 2.0 if self.limit > 0 else -2.0
        return logits


@defect("LP109", "looks a factor up that its table lacks, at each step", fix="raises at each step")
class LooksUpNothing(Bias):
    FACTORS: ClassVar[dict[str, float]] = {"usual": 1.0}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        return found and (*found, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, outputs) in self.rows.items():
            logits[row, where] += bias * self.FACTORS[self.key(outputs)]
        return logits

    def key(self, outputs: list[int]) -> str:
        return "unusual"


@defect("LP109", "looks a factor up that its table lacks, before the first token of an output", fix="first step")
class LooksUpNothingYet(LooksUpNothing):
    def key(self, outputs: list[int]) -> str:
        return "usual" if outputs else "unusual"


@sound("refuses fields that servers set next to its own, and raises if they arrive all the same")
class RefusesServerFields(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if cls.read(params) is not None and cls.has_others(params):
            raise ValueError("bias needs temperature 1, and no seed, stop token ids or min_tokens")

    @staticmethod
    def has_others(params: Any) -> bool:
        return params.temperature != 1.0 or bool(params.seed or params.stop_token_ids or params.min_tokens)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        assert state is None or not self.has_others(params)
        return state


class TakesOutAll(Bias):
    """Its rows, with each removed row taken out."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        for row in batch_update.removed if batch_update else ():
            del self.rows[row]
        super().update_state(batch_update)


defect(
    "LP109",
    "takes out the entry of each row that is removed",
    line="del self.rows[row]",
    fix="write `self.rows.pop(row, None)` in place of `del self.rows[row]`",
)(TakesOutAll)


@defect("LP109", "keeps the moves for later by changing the update", cause="the object is frozen", fix="your own copy")
class EmptiesTheUpdate(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            batch_update.moved = []  # type: ignore[misc]
        super().update_state(batch_update)


@defect(
    "LP109",
    "a buffer has four rows, however many requests the engine serves",
    cause="room for 4 requests",
    state="self.held",
    line="self.held = torch.zeros(4",
)
class FourRows(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held = torch.zeros(4, device=self.device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            self.held[row] = bias
            logits[row, where] += self.held[row]
        return logits


@defect(
    "LP109",
    "a buffer has four slots",
    cause="room for 4 requests",
    state="self.values",
    line="self.values = torch.zeros(4)",
)
class FourSlots(Boost):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.values = torch.zeros(4)


@defect(
    "LP109", "limits up to 16,384 in a byte", line="dtype=np.uint8", cause="does not fit in the type of `self.limits`"
)
class ByteLimits(V1Base):
    CASE = {"extra_args": {"limit": 300}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.limits = np.zeros(self.max_num_seqs, dtype=np.uint8)

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "limit", 1, 16_384)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        self.limits[:] = 0
        for row, limit in self.rows.items():
            self.limits[row] = int(limit)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row, 7] += self.limits[row]
        return logits
