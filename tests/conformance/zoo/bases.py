"""Bases that specimens of several rules share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.correct.adapter import AdapterBase
from zoo.correct.v1 import ByHand, V1Base
from zoo.correct.v1_history import History
from zoo.correct.v2 import V2Base, V2History, V2MinTokens


class Late(V1Base):
    """Its bias begins with the ``FIRST``-th output token; the state is the bias, the token and the live list."""

    CASE = {"extra_args": {"bias": 2.5, "token": 7}}
    FIRST = 20

    @classmethod
    def read(cls, params: Any) -> Any:
        args = params.extra_args or {}
        bias, where = args.get("bias"), args.get("token")
        if bias is None and where is None:
            return None
        if type(bias) not in (int, float) or not -100 <= bias <= 100 or type(where) is not int or not 0 <= where < 512:
            raise ValueError("bias must be a number in [-100, 100] and token an id below 512")
        return where, bias

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return None if state is None else (*state, prompt or [], outputs)

    def due(self, outputs: list[int]) -> bool:
        return len(outputs) >= self.FIRST

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                self.act(logits[row], where, bias)
        return logits

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] += bias


class AtChanges(Late):
    """Decides in ``update_state`` who is due, and returns early where the batch does not change."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.now: list[tuple[int, int, float]] = []

    def begins(self, where: int, outputs: list[int]) -> bool:
        return self.due(outputs)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        super().update_state(batch_update)
        states = self.rows.items()
        self.now = [(row, where, bias) for row, (where, bias, _, outputs) in states if self.begins(where, outputs)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, where, bias in self.now:
            self.act(logits[row], where, bias)
        return logits


class PortableLate(lpkit.LogitsProcessor):
    """A boost from the n-th output token on."""

    CASE = {"extra_args": {"late_bias": 3.0, "late_token": 17}}
    history = "length"

    class Params(lpkit.Params, prefix="late_"):
        bias: float = lpkit.Field(ge=-100.0, le=100.0)
        token: lpkit.TokenId
        start: int = lpkit.Field(default=20, ge=0)

    bias = lpkit.column(torch.float32)
    token = lpkit.column(torch.int64)
    start = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.bias[request.slot] = request.params.bias
        self.token[request.slot] = request.params.token
        self.start[request.slot] = request.params.start
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        now = logits[ids]
        due = (rows.output_len >= self.start[rows]).unsqueeze(1)
        logits[ids] = torch.where(due, self.change(now), now)

    def change(self, now: torch.Tensor) -> torch.Tensor:
        return now + 3.0


class V2OnceOld(V2MinTokens):
    """Raises a token once the output has the length that its argument names."""

    def lengths(self) -> torch.Tensor:
        return self.req_states.prompt_len.gpu

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots, lengths = ctx.expanded_idx_mapping.long(), self.lengths()
        asked = self.per_row(ctx)
        due = (asked > 0) & (lengths[slots] > 0) & (ctx.pos + 1 - lengths[slots] >= asked)
        logits[:, 2] = torch.where(due, logits[:, 2] + 3.0, logits[:, 2])
        return logits


class AfterMarker(Late):
    """Its bias needs a marker as the last token."""

    MARKER = 300

    def due(self, outputs: list[int]) -> bool:
        return outputs[-1:] == [self.MARKER]


class IfBest(Late):
    """Applies its bias only if a certain token is the best."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, _) in self.rows.items():
            if int(logits[row].argmax()) == 311:
                self.act(logits[row], where, bias)
        return logits


class IfPrompted(Late):
    """Its bias needs a certain token in the prompt."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, prompt, _) in self.rows.items():
            if 322 in prompt:
                self.act(logits[row], where, bias)
        return logits


class Clean(ByHand):
    """Assumes that unoccupied rows are clean, and clears a row only when a request leaves."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.occupied: set[int] = set()

    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is not None or row in self.occupied:
                self.place(row, state)
            self.occupied.add(row)

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.rows.pop(row, None)
            self.occupied.discard(row)

    def moves(self, update: BatchUpdate) -> None:
        super().moves(update)
        self.occupied = set(range(update.batch_size))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if row < logits.shape[0]:
                logits[row, where] += bias
        return logits


class Relative(History):
    """Acts by the number of outputs since some start."""

    def start(self, outputs: list[int]) -> int:
        return 0

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return None if state is None else [*state, self.start(outputs)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, start) in self.rows.items():
            logits[row, 3 + (len(outputs) - start) % 12] += weight
        return logits


class Boost(V2Base):
    """Raises token 5 of the rows that ask for it; the sound version."""

    CASE = {"extra_args": {"bias": 2.0}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx)
        return logits


class ByLength(V2History):
    """Raises a token that the output's length chooses; the sound version."""

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return ctx.pos + 1 - self.req_states.prompt_len.gpu[ctx.expanded_idx_mapping.long()]

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        chosen = (3 + self.outputs(ctx) % 12).long().unsqueeze(1)
        return logits.scatter_add_(1, chosen, self.per_row(ctx).unsqueeze(1))


class Counter(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.count = torch.zeros(req_states.max_num_reqs, dtype=torch.int64, device=self.device)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.count[req_idx] = int(self.req_states.prefill_len.np[req_idx] - self.req_states.prompt_len.np[req_idx])
        return super().add_request(req_idx, params)

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.count[ctx.expanded_idx_mapping.long()]


class Dense(lpkit.LogitsProcessor):
    """Adds an amount to token 5; the sound version."""

    CASE = {"extra_args": {"dense_amount": 1.5}}

    class Params(lpkit.Params, prefix="dense_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows]
        return logits


class CountsCalls(Dense):
    """A counter by slot, advanced where ``advance`` is called."""

    history = "length"

    def __init__(self, *args: Any) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)
        super().__init__(*args)

    def chosen(self, rows: lpkit.Rows) -> torch.Tensor:
        return torch.tensor([3 + self.counts[slot] % 12 for slot in rows.slots.tolist()], device=self.device)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.scatter_add_(1, self.chosen(rows).unsqueeze(1), self.amount[rows].unsqueeze(1))


class Simple(AdapterBase):
    """Makes one callable per request with ``make``; the sound frame."""

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return None if own is None else self.make(own.amount, params)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        raise NotImplementedError
