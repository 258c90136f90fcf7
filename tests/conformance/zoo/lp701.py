"""Defects that LP701 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lpkit import v2

from zoo.bases import Boost, Simple
from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP701", "a Python loop over rows")
class Loops(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias
        return logits


@defect("LP701", "one index operation per row", name="RowByRow", also=("LP804",))
class V2RowByRow(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.idx_mapping_np):
            logits[row, 5] += self.on_device[slot]
        return logits


@defect("LP701", "every adapter runs row by row; this one is otherwise right")
class OrdinaryAdapter(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += amount
            return logits

        return apply
