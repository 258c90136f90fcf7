"""Rules that begin late, end early or wait for something, and break the contract only then."""

from __future__ import annotations

from typing import Any

import lpkit
import torch

from zoo.arguments import INF
from zoo.correct import V1Base
from zoo.registry import defect, sound


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


@defect("LP302", "scales the whole batch, from the 20th token of any of its requests", style="v1")
class LateScale(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if any(self.due(outputs) for *_, outputs in self.rows.values()):
            logits *= 0.5
        return logits


@defect("LP303", "adds more with each call, from the 20th token", style="v1")
class LateCount(Late):
    calls = 0

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        self.calls += 1
        row[where] += bias * self.calls


@defect("LP304", "flat indices, from the 20th token", style="v1")
class LateFlat(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        due = [(row, where) for row, (where, _, _, outputs) in self.rows.items() if self.due(outputs)]
        if due:
            logits.view(-1)[[row * logits.shape[1] + where for row, where in due]] += 2.0
        return logits


@defect("LP305", "writes a finite value over its token, masked or not, from the 20th token", style="v1")
class LateRevival(Late):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] = 9.0 + bias


@defect("LP306", "divides by the number of tokens that are left of its budget, which is 0 once", style="v1")
class LateNan(Late):
    FIRST = 25

    def due(self, outputs: list[int]) -> bool:
        return len(outputs) <= self.FIRST

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                left = torch.tensor(float(self.FIRST - len(outputs)))
                logits[row, where] += bias * (left / left)
        return logits


@defect("LP307", "masks everything but its token, and that token too, when the budget of 30 is spent", style="v1")
class LateSilence(Late):
    FIRST = 30

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row.fill_(-INF)


@defect("LP401", "its claim holds for 20 tokens", style="v1")
class LateClaim(Late):
    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                logits[row, where] += bias
            else:
                logits[row] *= 1.5
        return logits


@defect("LP402", "claims to keep the argmax until a request is 20 tokens old", style="v1")
class LateChange(Late):
    def is_argmax_invariant(self) -> bool:
        return not any(self.due(outputs) for *_, outputs in self.rows.values())


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


@defect("LP305", "writes a finite value over its token, masked or not, from the 20th token", style="portable")
class PortableLateRevival(PortableLate):
    def change(self, now: torch.Tensor) -> torch.Tensor:
        return torch.full_like(now, 9.0)


# -- correct ones that look odd --------------------------------------------------------------------------------


@sound("begins with the 30th token", "v1")
class FromTheThirtieth(Late):
    FIRST = 30


@sound("acts on the first token only", "v1")
class FirstTokenOnly(Late):
    def due(self, outputs: list[int]) -> bool:
        return not outputs


@sound("acts on every tenth token only", "v1")
class EveryTenth(Late):
    def due(self, outputs: list[int]) -> bool:
        return len(outputs) % 10 == 9


@sound("begins with the 20th token", "portable")
class PortableFromTheTwentieth(PortableLate):
    pass
