"""A portable processor of token ids that is right; its neighbours, ``LPnnn.sdk.diff``, make it wrong."""

from __future__ import annotations

import lpkit
import torch


class Echo(lpkit.LogitsProcessor):
    """Raise the logit of the last output token, by `echo` for each output token."""

    history = "tokens"

    class Params(lpkit.Params):
        echo: float = lpkit.Field(gt=0.0, le=10.0)

    strength = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.strength[request.slot] = request.params.echo
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        end = rows.total_len.clamp(min=1) - 1
        last = rows.tokens.gather(1, end.unsqueeze(1))
        change = self.strength[rows] * rows.output_len
        change = torch.where(last >= 0, change.unsqueeze(1), 0.0)
        return logits.scatter_add_(1, last.clamp(min=0), change)
