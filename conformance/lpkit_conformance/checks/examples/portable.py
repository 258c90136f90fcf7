"""A portable processor that is right; its neighbours, ``LPnnn.diff``, make it wrong."""

from __future__ import annotations

import math

import lpkit
import torch


class Floor(lpkit.LogitsProcessor):
    """Mask tokens less likely than `floor` times the most likely one."""

    stage = "sampling"

    class Params(lpkit.Params, prefix="floor"):
        floor: float = lpkit.Field(gt=0.0, le=1.0, alias="floor")

    log_floor = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.log_floor[request.slot] = math.log(request.params.floor)
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        below = rows.temperature * self.log_floor[rows].unsqueeze(1)
        return logits.masked_fill_(logits < logits.amax(-1, keepdim=True) + below, -math.inf)
