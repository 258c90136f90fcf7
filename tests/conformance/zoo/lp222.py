"""Defects that LP222 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import torch

from zoo.correct.v1_history import History
from zoo.registry import sound


class CountsPrompt(History):
    """Lowers the prompt's tokens that the vocabulary has; the sound version."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else (weight, list(prompt or ()))

    def known(self, ids: list[int], size: int) -> list[int]:
        return sorted({item for item in ids if 0 <= item < size})

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, prompt) in self.rows.items():
            logits[row, self.known(prompt, logits.shape[1])] -= weight
        return logits


sound("ignores prompt ids outside the vocabulary")(CountsPrompt)
