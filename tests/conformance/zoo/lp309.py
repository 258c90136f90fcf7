"""Defects that LP309 must catch."""

from __future__ import annotations

import torch

from zoo.arguments import INF
from zoo.correct.v1 import DenseMinP
from zoo.registry import defect


@defect("LP309", "a maximum over a batch that may be empty")
class MaximumOfNothing(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if float(logits.max()) == -INF else super().apply(logits)
