"""Defects that LP304 must catch."""

from __future__ import annotations

import torch
from lpkit import v2

from zoo.bases import Boost, Late
from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP304", "flat indices, from the 20th token")
class LateFlat(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        due = [(row, where) for row, (where, _, _, outputs) in self.rows.items() if self.due(outputs)]
        if due:
            logits.view(-1)[[row * logits.shape[1] + where for row, where in due]] += 2.0
        return logits


@defect("LP304", "view(-1)")
class Views(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits.view(-1)[row * logits.shape[1] + where] += bias
        return logits


@defect("LP304", "strides that assume a contiguous batch")
class AssumesStrides(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        rows, vocab = logits.shape
        flat = logits.as_strided((rows * vocab,), (1,))
        flat[torch.arange(rows, device=logits.device) * vocab + 5] += self.per_row(ctx)
        return logits
