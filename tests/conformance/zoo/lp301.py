"""Defects that LP301 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense
from zoo.correct.v1 import Bias
from zoo.registry import defect


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
