"""Defects that LP301 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense
from zoo.correct.adapter import AdapterBase
from zoo.correct.v1 import Bias
from zoo.registry import defect, sound


@defect("LP301", "returns a transposed tensor", fix=".contiguous()")
class Transposes(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits).t().contiguous().t()


@defect("LP301", "promotes to float64 once four requests are in the batch")
class Promotes(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        return result.double() if logits.shape[0] >= 4 and self.rows else result


@defect("LP301", "forgets to return the logits when it has nothing to do", fix="return logits")
class ReturnsNothing(Bias):
    def apply(self, logits: torch.Tensor) -> Any:
        if self.rows:
            return super().apply(logits)
        return None


@defect("LP301", "returns the rows of its own requests only", fix="all rows and all tokens")
class OwnRowsOnly(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx)
        logits[:, 5] += own
        return logits if bool((own != 0).any()) else logits[own != 0]


@defect("LP301", "half precision when the whole batch is its own", fix=".to(logits.dtype)")
class HalfPrecision(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        result = super().process(logits, rows)
        return result.half() if rows.whole and rows.n > 1 else result


@defect(
    "LP301",
    "divides a copy of its rows in place",
    line="block = ",
    cause="`block` is a tensor of its own",
    fix="`block`",
)
class ChangesACopy(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        block = logits[list(self.rows)]
        block.div_(2.0)
        return logits


@defect("LP301", "indexes twice", line="[:, 5] +=", cause="`logits[list(self.rows)]` makes a new tensor")
class IndexesTwice(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits[list(self.rows)][:, 5] += 2.0
        return logits


@defect("LP301", "drops the result of a method", line=".mul(", cause="`logits[row].mul(bias)` makes a new tensor")
class DropsTheResult(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in self.rows.items():
            logits[row].mul(bias)
        return logits


@defect("LP301", "gives the name of a row to a new tensor", line="mine + ", cause="`mine` is a tensor of its own")
class RebindsTheRow(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in self.rows.items():
            mine = logits[row]
            mine = mine + bias
        return logits


@sound("keeps the logits of the step before, for an output longer than the cases have")
class KeepsTheLast(AdapterBase):
    late = False

    def new_req_logits_processor(self, params: Any) -> Any:
        return Kept(self.late) if self.params(params) else None


class Kept:
    def __init__(self, late: bool) -> None:
        self.late, self.last = late, torch.zeros(1)

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if self.late:
            logits -= self.last
        self.last = logits.clone()
        return logits


@sound("computes a copy in each step, and uses it after more tokens than the cases have")
class UsesItsCopyLate(Bias):
    late = False

    def halved(self, logits: torch.Tensor) -> torch.Tensor:
        return logits / 2.0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        block = self.halved(logits)
        for row in self.rows:
            block[row, 5] += 1.0
            logits[row] = block[row] if self.late else logits[row]
        return logits
