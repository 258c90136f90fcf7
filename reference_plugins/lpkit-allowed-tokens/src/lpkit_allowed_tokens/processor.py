"""Allowed tokens: a request chooses among the tokens of its list (`allowed_token_ids` of vLLM)."""

from __future__ import annotations

import lpkit
import torch


class AllowedTokens(lpkit.LogitsProcessor):
    """Mask every token that is not one of `allowed_tokens`."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "none"

    # The prefix is the whole key: `allowed_token` is refused as a mistake.
    class Params(lpkit.Params, prefix="allowed_token"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field(alias="allowed_tokens", min_length=1)

    allowed = lpkit.token_set()  # requests with equal lists share one mask on the device

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.allowed[request.slot] = request.params.ids
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        # If a grammar leaves nothing of the list, better a token that the grammar allows than none at all.
        return self.allowed.keep_only_(logits, rows)
