"""Defects that LP212 must catch."""

from __future__ import annotations

from typing import Any

import torch

from zoo.correct.v1_history import History
from zoo.registry import defect


@defect(
    "LP212",
    "takes its first apply for the first token, and remembers the request's best token then",
    advice="past-logits",
)
class FirstApply(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, None]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            if state[2] is None and len(state[1]) == 0:
                state[2] = int(logits[row].argmax())
            if state[2] is not None and len(state[1]) == 1:
                logits[row, state[2]] -= state[0]
        return logits
