"""Defects that LP310 must catch, and correct processors that resemble them."""

from __future__ import annotations

import lpkit
import torch
from lpkit import v2

from zoo.arguments import INF
from zoo.bases import Dense
from zoo.correct.v1 import Bias
from zoo.correct.v2 import V2MinP
from zoo.registry import defect, sound


@defect(
    "LP310",
    "returns early if anything is masked",
    line="return logits if bool",
    cause="answered otherwise",
    also=("LP112",),
)
class OffForMasks(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if bool((logits == -INF).any()) else super().apply(logits)


@defect("LP310", "leaves rows with masked tokens alone, against NaN", case={"extra_args": {"floor": 0.15}})
class MinPWithoutMasks(V2MinP):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        before = logits.clone()
        return torch.where((before == -INF).any(1, keepdim=True), before, super().apply(logits, ctx))


@defect(
    "LP310", "the deviation of a row with a masked token is NaN", line="logits.std(", cause="has come into `logits.std"
)
class SpreadOfMasked(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        least = logits.amax(1, keepdim=True) - logits.std(1, keepdim=True) * self.amount[rows].unsqueeze(1).abs()
        return logits.masked_fill_(logits < least, -INF)


@sound("leaves masked tokens alone, and no others")
class LeavesMaskedTokens(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.where(logits > -INF, super().apply(logits.clone()), logits)
