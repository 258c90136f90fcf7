"""A portable processor that edits a few logits and is right; its neighbours, ``LPnnn.sdk.diff``, make it wrong."""

from __future__ import annotations

import lpkit
import torch


class Nudge(lpkit.LogitsProcessor):
    """Raise the logit of the token `up`, and lower that of the token `down`."""

    class Params(lpkit.Params, prefix="nudge_"):
        up: lpkit.TokenId
        down: lpkit.TokenId

    up = lpkit.column(torch.int64)
    down = lpkit.column(torch.int64)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.up[rows].unsqueeze(1)] += 2.0
        logits[self.down[rows].unsqueeze(1)] -= 2.0
