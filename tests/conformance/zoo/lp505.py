"""Defects that LP505 must catch."""

from __future__ import annotations

import torch

from zoo.correct.v1_history import History
from zoo.registry import defect


@defect(
    "LP505",
    "asks whether the list begins with a placeholder: that of a request that came back begins with tokens",
    cause="`outputs[-1]` is used as an index",
)
class AsksTheFirst(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[0] >= 0:
                logits[row, outputs[-1]] -= weight
        return logits
