"""Defects that no check finds, and why. Nothing is asserted about them; the matrix reports them."""

from __future__ import annotations

from typing import Any

import torch

from zoo.registry import defect
from zoo.v1_correct import Bias
from zoo.v1_history_correct import History


@defect(
    "LP214",
    "a window of the last 32 tokens where the whole history is meant",
    style="v1",
    missed="a function of the tokens, so right for all the suite can know: that it is the wrong one is for the "
    "plugin's own tests",
)
class ShortWindow(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            for item in {token for token in outputs[-32:] if token >= 0}:
                logits[row, item] -= weight
        return logits


@defect(
    "LP308",
    "one pinned buffer, overwritten while the copy of the last step is still under way",
    style="v1",
    missed="a race that needs a GPU and a busy stream",
)
class OnePinnedBuffer(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.staged = torch.zeros(self.max_num_seqs, pin_memory=is_pin_memory)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            ids, bias = zip(*self.rows.values(), strict=True)
            self.staged[: len(bias)] = torch.tensor(bias)
            values = self.staged[: len(bias)].to(logits.device, non_blocking=True)
            logits.index_put_((torch.tensor(list(self.rows)), torch.tensor(ids)), values, accumulate=True)
        return logits
