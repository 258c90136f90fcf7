"""Defects that LP306 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, IfBest, Late, Simple
from zoo.correct.v1 import V1Base
from zoo.registry import defect


@defect("LP306", "divides by the number of tokens that are left of its budget, which is 0 once", cause="`left` is 0")
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


@defect("LP306", "0 / 0 once a marker was generated that no case gives")
class NanAfterMarker(Late):
    FIRST = 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            seen = torch.tensor(float(333 not in outputs[-1:]))
            logits[row, where] += bias * (seen / seen)
        return logits


@defect("LP306", "0 / 0 in rows whose best token is a certain one")
class NanIfBest(IfBest):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] += bias * ((row[311] - row.max()) / (row[311] - row.max()))


@defect(
    "LP306",
    "subtracts the mean of the row: -inf when a token is masked",
    advice="reduced",
    case={"extra_args": {"bias": 1.5}},
)
class Centers(V1Base):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row] = (logits[row] - logits[row].mean()) * (1 + abs(amount) / 100)
        return logits


@defect("LP306", "a share of the row's range, which is infinite when a token is masked", line="return torch.where(own")
class ShareOfRange(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx).unsqueeze(1) / 100
        spread = logits.amax(1, keepdim=True) - logits.amin(1, keepdim=True)
        return torch.where(own != 0, (logits + own) / (1 + own * spread), logits)


@defect("LP306", "divides by an argument that may be left out")
class DividesByNothing(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"div_amount": 1.5, "div_by": 2.0}}

    class Params(lpkit.Params, prefix="div_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)
        by: float | None = lpkit.Field(None, ge=0.5, le=50.0)

    amount = lpkit.column(torch.float32)
    by = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        self.by[request.slot] = request.params.by or 0.0
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows] * (self.by[rows] / self.by[rows])
        return logits


@defect("LP306", "the deviation of a row with masked tokens", case={"extra_args": {"sigmas": 1.5}}, line=".std(")
class DeviationOfMasked(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        sigmas: float = lpkit.Field(ge=0.0, le=100.0)

    sigmas = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.sigmas[request.slot] = request.params.sigmas
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        scale = 1 + 0.1 * self.sigmas[rows].unsqueeze(1)
        return logits / (logits.std(-1, keepdim=True) + 0.1) * scale


@defect(
    "LP306",
    "a temperature of its own by the spread of the row",
    line="spread = logits.max()",
    cause="`spread` is inf",
)
class OwnTemperature(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            spread = logits.max() - logits.min()
            return (logits - logits.max()) / (1 + spread / 50) * (1 + abs(amount) / 10)

        return apply


@defect(
    "LP306",
    "a type that does not hold each accepted number",
    case={"extra_args": {"bias": 1e5}},
    fix="in float32",
    advice="held",
)
class HalfPrecision(V1Base):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.amounts = torch.zeros(vllm_config.scheduler_config.max_num_seqs, dtype=torch.float16, device=device)

    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        if bias is not None and (type(bias) not in (int, float) or not abs(bias) <= 1e6):
            raise ValueError(f"bias must be a number of at most 1e6, not {bias!r}")
        return bias

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.rows.items():
            self.amounts[row] = bias
            logits[row, 3:9] += self.amounts[row]
        return logits
