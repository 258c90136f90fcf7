"""Defects that LP222 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import torch

from zoo.correct.v1_history import History
from zoo.registry import defect, sound


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


@defect(
    "LP222",
    "marks the prompt's tokens in a table of the vocabulary",
    line="marks[prompt or [0]] = ",
    cause="`prompt` holds 512; 512 is no token id of the model",
)
class MarksPrompt(CountsPrompt):
    SIZE = 512

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight, marks = self.read(params), torch.zeros(self.SIZE, device=self.device)
        if weight is None:
            return None
        marks[prompt or [0]] = 1.0
        return weight, [int(token) for token in marks.nonzero()]


@defect(
    "LP222",
    "marks the prompt's tokens in a list",
    line="marks[token] = True",
    cause="`token` is 512; 512 is no token id of the model",
)
class MarksPromptInAList(MarksPrompt):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight, marks = self.read(params), [False] * self.SIZE
        for token in prompt or () if weight else ():
            marks[token] = True
        return None if weight is None else (weight, [token for token in range(self.SIZE) if marks[token]])
