"""Defects that LP808 must catch."""

from __future__ import annotations

import torch
from lpkit import v2

from zoo.bases import Boost
from zoo.registry import defect


@defect("LP808", "leaves the draft rows of resumed requests alone: their prompt is longer than its first part")
class ResumedDrafts(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        resumed = self.req_states.prefill_len.gpu[slots] > self.req_states.prompt_len.gpu[slots]
        return torch.where(resumed & (ctx.expanded_local_pos > 0), 0.0, super().per_row(ctx))
