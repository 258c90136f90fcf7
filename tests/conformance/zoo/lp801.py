"""Defects that LP801 must catch."""

from __future__ import annotations

import torch
from lpkit import v2

from zoo.lp202 import KeepsOptional
from zoo.registry import defect


@defect("LP801", "the same, but it shows from the second token on", also=("LP202",))
class KeepsOptionalForLater(KeepsOptional):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        prompt = self.req_states.prompt_len.gpu[ctx.expanded_idx_mapping.long()]
        return torch.where((ctx.pos + 1 > prompt)[:, None], super().apply(logits.clone(), ctx), logits)
