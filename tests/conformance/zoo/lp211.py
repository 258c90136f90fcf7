"""Defects that LP211 must catch."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import lpkit
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import number
from zoo.bases import Boost, ByLength, CountsCalls, Relative, Simple
from zoo.correct.v1 import Bias, ByHand, V1Base
from zoo.correct.v1_history import History
from zoo.registry import defect, sound


@defect("LP211", "counts outputs from the Add on: a resumed request starts again", cause="when a comes back")
class StartsAtAdd(Relative):
    def start(self, outputs: list[int]) -> int:
        return len(outputs)


@defect("LP211", "starts again on resumption, once the output is longer than five tokens")
class StartsLateAtAdd(Relative):
    def start(self, outputs: list[int]) -> int:
        return len(outputs) if len(outputs) > 5 else 0


@defect("LP211", "knows a request by its prompt list, and goes on with the output list that came first")
class OldList(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lists: dict[int, tuple[Any, list[int]]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        if weight is None:
            return None
        if not outputs:
            self.lists = dict(list(self.lists.items())[-63:]) | {id(prompt): (prompt, outputs)}
        return [weight, self.lists.setdefault(id(prompt), (prompt, outputs))[1]]


@defect(
    "LP211",
    "counts from prefill_len, which has the outputs of a resumed request in it",
    fix="write `self.req_states.prompt_len` in place of `self.req_states.prefill_len`",
    line="self.req_states.prefill_len.gpu",
)
class CountsFromPrefill(ByLength):
    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return ctx.pos + 1 - self.req_states.prefill_len.gpu[ctx.expanded_idx_mapping.long()]


@defect(
    "LP211",
    "keeps prefill_len as the prompt's length: a resumed request's outputs are in it",
    cause="with `self.req_states.prompt_len` in place of `self.req_states.prefill_len`",
    state="self.start[7]",
    line="prefill_len",
)
class TakesPrefillForPrompt(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.start = torch.zeros(req_states.max_num_reqs, dtype=torch.int64)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.start[req_idx] = int(self.req_states.prefill_len.np[req_idx])
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        starts = self.start.to(self.device)[ctx.expanded_idx_mapping.long()]
        logits[:, 5] += torch.where(ctx.pos + 1 - starts < 4, self.per_row(ctx), 0.0)
        return logits


@defect("LP211", "counts its own calls, from zero at each admission")
class StartsAgain(CountsCalls):
    def admit(self, request: lpkit.Request) -> bool:
        self.counts[request.slot] = 0
        self.lengths: dict[int, int] = getattr(self, "lengths", {})
        self.lengths.pop(request.slot, None)
        return super().admit(request)

    def chosen(self, rows: lpkit.Rows) -> torch.Tensor:
        for slot, length in zip(rows.slots.tolist(), rows.total_len.tolist(), strict=True):
            self.counts[slot] = length - self.lengths.setdefault(slot, length)
        return super().chosen(rows)


@defect(
    "LP211",
    "copies the output list that comes with the Add, and reads no other",
    line="list(outputs)",
    advice="copied-list",
)
class CopiesTheList(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return super().enter(params, prompt, list(outputs))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            logits[row, 3 + len(outputs) % 12] += weight
        return logits


class Position:
    __slots__ = ("outputs", "start", "weight")

    def __init__(self, weight: float, outputs: list[int]) -> None:
        self.weight, self.outputs, self.start = weight, outputs, 0


@defect("LP211", "an object with slots counts from the Add on", line="found.start = len(outputs)")
class StartsInSlots(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else self.begin(weight, outputs)

    def begin(self, weight: float, outputs: list[int]) -> Any:
        found = Position(weight, outputs)
        found.start = len(outputs)
        return found

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, at in self.rows.items():
            logits[row, 3 + (len(at.outputs) - at.start) % 12] += at.weight
        return logits


@dataclass
class Told:
    weight: float
    outputs: list[int]
    start: int


@defect("LP211", "an object is told its length at the Add", line="start=len(outputs)", cause="when a comes back")
class StartsAsTold(StartsInSlots):
    def begin(self, weight: float, outputs: list[int]) -> Any:
        return Told(weight, outputs, start=len(outputs))


@defect(
    "LP211",
    "forgets where its marker stood: the engine's list, set empty, would hide that",
    line="self.marks, batch_update",
    state="self.marks[0]",
    cause="what had been computed from its output is gone",
    advice="resume",
)
class ForgetsItsMark(V1Base):
    CASE = {"extra_args": {"every": 2.0}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.outputs: dict[int, list[int]] = {}
        self.marks: dict[int, int] = {}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "every", 1.0, 50.0)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        super().update_state(batch_update)
        process_dict_updates(self.outputs, batch_update, lambda params, _, ids: ids if self.read(params) else None)
        process_dict_updates(self.marks, batch_update, lambda params, *_: -1 if self.read(params) else None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, every in self.rows.items():
            outputs = self.outputs[row]
            if outputs and outputs[-1] % 3 == 0:
                self.marks[row] = len(outputs) - 1
            if len(outputs) - self.marks[row] > every:
                logits[row, 5] += 4.0
        return logits


PARITIES = [f"the output so far has an {kind} number of even ids" for kind in ("even", "odd")]


@defect(
    "LP211",
    "changes with the newest token, and begins again: texts too long to tell the two states apart",
    line="parity = PARITIES[",
    cause="`parity` is not its own: with a's own the row is right",
    advice="resume",
    also=("LP303",),
)
class GoesByTheNewest(Simple):
    def make(self, amount: float, params: Any) -> Any:
        parity = PARITIES[0]

        def change(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            nonlocal parity
            if output_ids:
                parity = PARITIES[(PARITIES.index(parity) + output_ids[-1] + 1) % 2]
            logits[5] += amount * PARITIES.index(parity)
            return logits

        return change


class Once:
    """Lowers the best token of its first call that is peaked."""

    def __init__(self, amount: float) -> None:
        self.amount, self.done = amount, False

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if not self.done and float(torch.softmax(logits, dim=-1).max()) > 0.02:
            self.done = True
            logits[logits.argmax()] -= self.amount
        return logits


@defect("LP211", "acts once, at the first peaked logits", advice="past-logits", also=("LP212",))
class ActsOnce(Simple):
    def make(self, amount: float, params: Any) -> Any:
        return Once(amount)


class Window:
    """The last tokens of an output, in an object."""

    def __init__(self, size: int, outputs: list[int]) -> None:
        self.outputs = outputs
        self.last = deque(outputs[-size + 1 :], maxlen=size)
        self.read = len(outputs)

    def tokens(self) -> set[int]:
        self.last.extend(self.outputs[self.read :])
        self.read = len(self.outputs)
        return set(self.last)


@defect("LP211", "begins with a window that is one token short", line="outputs[-size", fix="write `-size`")
class BeginsShort(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else (Window(3, outputs), weight)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (window, weight) in self.rows.items():
            logits[row, sorted(window.tokens())] -= weight
        return logits


class Recent:
    """The last tokens of an output, with their counts."""

    SIZE = 4

    def __init__(self, outputs: list[int], bias: float) -> None:
        self.outputs, self.bias, self.tokens = outputs, bias, outputs[1 - self.SIZE :]
        self.counts, self.read = Counter(self.tokens), len(outputs)

    def refresh(self) -> Counter[int]:
        for token in self.outputs[self.read :]:
            self.tokens.append(token)
            self.counts[token] += 1
            if len(self.tokens) > self.SIZE:
                self.counts[self.tokens.pop(0)] -= 1
        self.read = len(self.outputs)
        return +self.counts


@defect(
    "LP211",
    "makes its window anew with a token less than it had",
    cause="comes back with",
    fix="it must be the same whether the tokens came step by step or all at once",
)
class ShorterWindow(Bias):
    CASE = {"extra_args": {"bias": 2.5, "token": 7}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and Recent(outputs, state[1])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, window in self.rows.items():
            for token, count in window.refresh().items():
                logits[row, token] -= abs(window.bias) * count
        return logits


@sound("counts outputs from the first, or from the third if its flag is set")
class CountsLate(Relative):
    CASE = {"extra_args": {"weight": 1.5, "late": False}}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        super().validate_params(params)
        if (params.extra_args or {}).get("late", False) not in (False, True):
            raise ValueError("late must be true or false")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None and (params.extra_args or {}).get("late"):
            state[-1] = self.late(outputs)
        return state

    def late(self, outputs: list[int]) -> int:
        return 2


@defect("LP211", "counts outputs from the Add on if its flag is set: a resumed request starts again")
class StartsLateRequestsAtAdd(CountsLate):
    def late(self, outputs: list[int]) -> int:
        return len(outputs) + 2


@dataclass
class Allowance:
    """A bias, the output of its request, and where its count begins."""

    bias: float
    outputs: list[int]
    since: int


@defect("LP211", "counts from the Add", state="self.rows[0].since", line="since=len(outputs)")
class CountsFromTheAdd(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, _, outputs in update.added:
            self.rows.pop(row, None)
            if state := self.read(params):
                self.rows[row] = Allowance(
                    bias=state[1],
                    outputs=outputs,
                    since=len(outputs),
                )

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, entry in self.rows.items():
            logits[row, 3 + (len(entry.outputs) - entry.since) % 12] += entry.bias
        return logits


@sound("a request that comes back is put into its own row")
class ResumesInItsRow(ByHand):
    last = 0

    def row_of(self, row: int, outputs: list[int]) -> int:
        return row

    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            self.rows.pop(row, None)
            state = self.enter(params, prompt, outputs)
            if state is not None:
                self.rows[self.row_of(row, outputs)] = state
            self.last = row

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if row < len(logits):
                logits[row, where] += bias
        return logits


@defect(
    "LP211",
    "a request that comes back is put into the row of the request that came last",
    line="return self.last if outputs",
    cause="`self.last` is 1, not its own: with a's own, 0, the row is right",
    state="self.last",
)
class ResumesInTheLastRow(ResumesInItsRow):
    def row_of(self, row: int, outputs: list[int]) -> int:
        return self.last if outputs else row
