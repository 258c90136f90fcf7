"""Defects that LP311 must catch, and correct processors that resemble them."""

from __future__ import annotations

import lpkit
import torch

from zoo.correct.v1 import Bias
from zoo.registry import defect, sound


class TwoLists(lpkit.LogitsProcessor):
    """Raises one list of tokens and lowers another; the sound version."""

    CASE = {"extra_args": {"two_by": 2.0, "two_up": [4], "two_down": [9, 10]}}

    class Params(lpkit.Params, prefix="two_"):
        by: float = lpkit.Field(gt=0.0, le=50.0)
        up: tuple[lpkit.TokenId, ...] = lpkit.Field((), max_length=32)
        down: tuple[lpkit.TokenId, ...] = lpkit.Field((), max_length=32)

        def check_together(self) -> None:
            if {*self.up} & {*self.down}:
                raise ValueError("two_up, two_down: a token occurs twice")

    by = lpkit.column(torch.float32)
    up = lpkit.ragged(torch.int64, limit=32)
    down = lpkit.ragged(torch.int64, limit=32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        by = self.by[rows].unsqueeze(1)
        logits[self.up[rows]] += by
        lowered = logits[self.down[rows]]
        lowered -= by
        self.keep(logits, self.down[rows], lowered)

    def keep(self, logits: lpkit.SparseLogits, ids: torch.Tensor, values: torch.Tensor) -> None:
        logits[ids] = values


@sound("changes a copy of some logits, and writes it back in another method")
class WritesTheCopy(TwoLists):
    pass


@defect("LP311", "changes a row, and a copy of some of its logits", line="[[3, 4]].mul_", cause="makes a new tensor")
class ChangesSomeOfACopy(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits = super().apply(logits)
        for row in self.rows:
            logits[row][[3, 4]].mul_(0.5)
        return logits


@sound("changes a part of a copy in place by another name, and a copy in a function of its own")
class ChangesPartsOfACopy(Bias):
    def halve(self, values: torch.Tensor) -> None:
        values *= 0.5

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits = super().apply(logits)
        for row in self.rows:
            some = logits[row, [3, 4, 5]]
            part = some[1:]
            part -= 1.0
            self.halve(some)
            logits[row, [3, 4, 5]] = some
        return logits
