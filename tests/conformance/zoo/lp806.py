"""Defects that LP806 must catch."""

from __future__ import annotations

import torch
from lpkit import v2

from zoo.bases import Boost
from zoo.registry import defect


@defect("LP806", "takes a bound of zero for a warm-up and does nothing")
class ZeroIsWarmUp(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return super().apply(logits, ctx) if ctx.seq_lens_upper_bound_np.min() > 0 else logits
