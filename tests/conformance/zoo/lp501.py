"""Defects that LP501 must catch."""

from __future__ import annotations

import torch
from lpkit.v1 import BatchUpdate

from zoo.correct.v1_history import History
from zoo.registry import defect


@defect("LP501", "copies the output list whenever the batch changes, and extends the copy by what is new")
class CopiesOutputs(History):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for state in self.rows.values():
            state[2:] = [list(state[1])]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, copied) in self.rows.items():
            if copied:
                logits[row, torch.tensor(sorted(set(copied)))] -= weight
        return logits
