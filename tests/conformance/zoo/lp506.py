"""Defects that LP506 must catch."""

from __future__ import annotations

from typing import Any

import torch

from zoo.correct.v1_history import History
from zoo.registry import defect


@defect("LP506", "a count that only ever goes up", cause="output tokens back")
class OnlyUp(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, 0]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            state[2] = max(state[2], len(state[1]))
            logits[row, 3 + state[2] % 12] += state[0]
        return logits
