"""Defects that LP208 must catch."""

from __future__ import annotations

import numpy as np
import torch
from lpkit import v2

from zoo.bases import Boost
from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP208", "keeps row numbers in bytes")
class ByteRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = np.array(list(self.rows), dtype=np.int64).astype(np.uint8)
        for row, (where, bias) in zip(rows.tolist(), self.rows.values(), strict=True):
            logits[row, where] += bias
        return logits


@defect("LP208", "row numbers modulo 512")
class FiveHundredTwelveRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row & 511, where] += bias
        return logits


@defect("LP208", "slots in a byte")
class ByteSlots(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.on_device[ctx.expanded_idx_mapping.to(torch.uint8).long()]
