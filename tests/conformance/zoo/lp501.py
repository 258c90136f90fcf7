"""Defects that LP501 must catch."""

from __future__ import annotations

from typing import Any

import torch

from zoo.correct.v1_history import History
from zoo.registry import defect


class Seen:
    """Tokens of an output list, each of which is looked at once."""

    def __init__(self, weight: float, outputs: list[int]) -> None:
        self.weight, self.outputs, self.read = weight, outputs, 0
        self.tokens: set[int] = set()

    def absorb(self) -> None:
        if len(self.outputs) < self.read:
            self.tokens.clear()
            self.read = 0
        self.tokens.update(token for token in self.outputs[self.read :] if token >= 0)
        self.read = len(self.outputs)


@defect("LP501", "looks at new tokens in update_state", line="self.read = len(", cause="may still be -1")
class LooksAhead(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else Seen(weight, outputs)

    def update_state(self, batch_update: Any) -> None:
        super().update_state(batch_update)
        for seen in self.rows.values():
            seen.absorb()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, seen in self.rows.items():
            logits[row, sorted(seen.tokens)] -= seen.weight
        return logits
