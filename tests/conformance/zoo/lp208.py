"""Defects that LP208 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense
from zoo.correct.v1 import Bias, ByHand
from zoo.registry import defect


@defect("LP208", "a table for 512 requests")
class TableOf512(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(512)
        for row, (where, bias) in self.rows.items():
            table[row] = bias
            logits[row, where] += table[row]
        return logits


@defect("LP208", "slots in a byte")
class ByteSlots(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.on_device[ctx.expanded_idx_mapping.to(torch.uint8).long()]


@defect("LP208", "changes a copy of the rows once there are more than eight, with drafts too")
class ChangesACopy(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        each = torch.arange(len(logits), device=logits.device)
        part = logits if len(logits) <= 8 else logits[each]
        part[:, 5] += self.amount[rows]
        return logits


@defect(
    "LP208", "a buffer has 16 rows", cause="room for 16 requests", state="self.held", line="self.held = torch.zeros(16"
)
class SixteenRows(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held = torch.zeros(16, 512, device=self.device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        held = self.held[: len(logits)].zero_()
        for row, (where, bias) in self.rows.items():
            held[row, where] = bias
        logits[:, :512] += held
        return logits


@defect("LP208", "a table that doubles once, however far beyond it the first row lies", line="self.held[row] =")
class DoublesOnce(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held = torch.zeros(4)

    def place(self, row: int, state: Any) -> None:
        super().place(row, state)
        if state is not None:
            if row >= len(self.held):
                self.held = torch.cat([self.held, torch.zeros_like(self.held)])
            self.held[row] = state[1]
