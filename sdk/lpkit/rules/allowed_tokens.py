"""Allowed tokens: a request chooses among the tokens of its list (`allowed_token_ids` of vLLM)."""

from __future__ import annotations

import torch

import lpkit


class AllowedTokens(lpkit.LogitsProcessor):
    """Mask every token that is not one of `ids`."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field(min_length=1)

    ids = lpkit.token_set()  # requests with equal lists share one mask on the device

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        # If a grammar leaves nothing of the list, better a token that the grammar allows than none at all.
        return self.ids.keep_only_(logits, rows)
