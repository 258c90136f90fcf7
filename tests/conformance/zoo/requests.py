"""Processors that meet requests as servers send them: each defect needs one property of those requests to show."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.arguments import token
from zoo.portable_correct import PortableBias
from zoo.registry import defect, sound
from zoo.v1_correct import Bias, ByHand, V1Base
from zoo.v1_history_correct import History
from zoo.v2_correct import V2Base

# -- finished requests are gone, and their addresses are used again --------------------------------------------


@defect("LP202", "parsed arguments are kept by the address of the output list", style="v1")
class ByAddressOfList(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if id(outputs) not in self.known:
            self.known[id(outputs)] = self.read(params)
        return self.known[id(outputs)]


@defect("LP202", "parsed arguments are kept by the address of the parameters", style="v2")
class ByAddressOfParams(V2Base):
    CASE = {"extra_args": {"bias": 2.0}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, Any] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        if id(params) not in self.known:
            self.known[id(params)] = self.read(params)
        self.values[req_idx] = self.known[id(params)] or 0.0
        return bool(self.known[id(params)])

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx)
        return logits


@sound("keyed by the address of the list, which it holds, so that nobody else gets that address", "v1")
class HoldsTheList(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, tuple[Any, list[int]]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state, _ = self.known.setdefault(id(outputs), (self.read(params), outputs))
        return state

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        while len(self.known) > 2 * self.max_num_seqs:
            del self.known[next(iter(self.known))]


@defect("LP210", "goes on counting where the last request with these parameters stopped", style="v1")
class CountsPerParameters(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.last: list[Any] = [None, 0, []]

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        if bias is None:
            return None
        before = self.last[1] + len(self.last[2]) if params is self.last[0] and not outputs else 0
        self.last = [params, before, outputs]
        return bias, before, outputs

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, before, outputs) in self.rows.items():
            logits[row, 3 + (before + len(outputs)) % 12] += bias
        return logits


# -- prompts that begin alike, and requests that differ in one argument ----------------------------------------


@defect("LP201", "a conversation is known by the beginning of its prompt", style="v1")
class ByPrefix(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[Any, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state if state is None or not prompt else self.known.setdefault(tuple(prompt[:2]), state)


@defect("LP202", "an optional argument that is left out is taken from the row's last request", style="v1")
class InheritsOptional(ByHand):
    CASE = {"extra_args": {"bias": 2.5, "token": 7, "second": 9}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.second: dict[int, int] = {}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        super().validate_params(params)
        token(params, "second")

    def additions(self, update: BatchUpdate) -> None:
        super().additions(update)
        for row, params, _, _ in update.added:
            second = token(params, "second")
            if second is not None or row not in self.rows:
                self.place_second(row, second)

    def place_second(self, row: int, second: int | None) -> None:
        self.second.pop(row, None)
        if second is not None:
            self.second[row] = second

    def removals(self, update: BatchUpdate) -> None:
        super().removals(update)
        for row in update.removed:
            self.place_second(row, None)

    def move(self, source: int, target: int) -> None:
        super().move(source, target)
        self.place_second(target, self.second.pop(source, None))

    def swap(self, first: int, second: int) -> None:
        super().swap(first, second)
        one, other = self.second.pop(first, None), self.second.pop(second, None)
        self.place_second(first, other)
        self.place_second(second, one)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, where in self.second.items():
            if row in self.rows:
                logits[row, where] -= 1.5
        return super().apply(logits)


# -- many alike, and a stranger --------------------------------------------------------------------------------


@defect("LP201", "when all of several users ask for the same, the whole batch gets it", style="v1")
class OneForAll(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if len(self.rows) > 3 and len(set(self.rows.values())) == 1:
            where, bias = next(iter(self.rows.values()))
            logits[:, where] += bias
            return logits
        return super().apply(logits)


@sound("the fast path for equal arguments is taken when every row is a user's", "v1")
class FastWhenAllAlike(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if len(self.rows) == logits.shape[0] and len(set(self.rows.values())) == 1:
            where, bias = next(iter(self.rows.values()))
            logits[:, where] += bias
            return logits
        return super().apply(logits)


# -- levels of logits, and greedy requests ---------------------------------------------------------------------


@defect("LP201", "large logits anywhere in the batch make it scale every row", style="v1")
class GuardsTheBatch(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows and bool(logits.amax() > 16):
            rows = list(self.rows)
            logits[rows] = logits[rows] * 0.5
        return super().apply(logits)


@sound("large logits of a row scale that row", "v1")
class GuardsTheRow(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = [row for row in self.rows if bool(logits[row].amax() > 16)]
        if rows:
            logits[rows] = logits[rows] * 0.5
        return super().apply(logits)


@defect("LP201", "one greedy request switches it off for the others", style="v1")
class OffForGreedy(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.greedy: list[Any] = []

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for _, params, _, outputs in batch_update.added if batch_update else ():
            if params.temperature == 0 and not outputs:
                self.greedy.append(outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        # For the request's first two tokens only, so that nobody meets it by the way.
        if not any(len(outputs) < 2 for outputs in self.greedy):
            for row, bias in self.rows.items():
                logits[row, 5] += bias
        return logits


# -- what servers write into a request -------------------------------------------------------------------------


@defect("LP102", "refuses another plugin's arguments next to its own", style="v1")
class OnlyMine(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        args = params.extra_args or {}
        if "bias" in args and args.keys() - {"bias", "token"}:
            raise ValueError("unknown arguments")
        super().validate_params(params)


@defect("LP102", "refuses a long max_tokens, which need not be there before the engine fills it in", style="v1")
class LimitsLength(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        super().validate_params(params)
        if "bias" in (params.extra_args or {}) and params.max_tokens > 4096:
            raise ValueError("max_tokens must be at most 4096")


@sound("counts down from max_tokens, which the engine has filled in when a request enters", "v1")
class CountsDown(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return state and [*state, params.max_tokens]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, most) in self.rows.items():
            logits[row, 5] += weight / max(most - len(outputs), 1)
        return logits


@defect("LP104", "edits the first stop token, of which a request need not have any", style="v1")
class NeedsStopToken(V1Base):
    CASE = {"extra_args": {"bias": 2.5}, "stop_token_ids": [5]}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else (bias, params.stop_token_ids[0])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, where) in self.rows.items():
            logits[row, where] += bias
        return logits


@sound("edits the first stop token of a request that has one", "v1")
class UsesStopToken(NeedsStopToken):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return super().enter(params, prompt, outputs) if params.stop_token_ids else None


@sound("reads the ids of logit_bias, which are ints in vLLM, also of a request as JSON", "v1")
class FollowsLogitBias(V1Base):
    CASE = {"extra_args": {"bias": 2.5}, "logit_bias": {"5": 1.0, "9": -1.0}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else (bias, [*(params.logit_bias or {})])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, ids) in self.rows.items():
            for where in [11, *ids]:
                logits[row, where] += bias
        return logits


# -- prompts without token ids ---------------------------------------------------------------------------------


@sound("grows with the reply's share of the prompt, whose length is 0 for prompt embeddings on V1", "portable")
class SharesKnownPrompt(PortableBias):
    history = "length"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        logits[ids] = logits[ids] + (self.bias[rows] * rows.output_len / self.length(rows)).unsqueeze(1)

    def length(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.prompt_len.clamp(min=1)


@defect("LP503", "divides by the length of a prompt that may have none", style="portable")
class SharesPrompt(SharesKnownPrompt):
    def length(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.prompt_len


# -- drafts, and rows ------------------------------------------------------------------------------------------


@defect("LP804", "takes every request to have as many drafts as the first one", style="v2")
class EqualDrafts(V2Base):
    CASE = {"extra_args": {"bias": 2.0}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.idx_mapping.long()
        each = -(-logits.shape[0] // len(slots))
        values = self.on_device[slots].repeat_interleave(each)[: logits.shape[0]]
        logits[:, 5] += values
        return logits


@defect("LP208", "row numbers modulo 512", style="v1")
class FiveHundredTwelveRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row & 511, where] += bias
        return logits
