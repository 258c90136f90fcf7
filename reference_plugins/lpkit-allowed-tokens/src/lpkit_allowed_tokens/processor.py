"""A choice among the tokens of a list; the rule is `lpkit.rules.allowed_tokens`."""

from __future__ import annotations

import lpkit
from lpkit.rules.allowed_tokens import AllowedTokens as Rule


class AllowedTokens(Rule):
    """Mask every token that is not one of `allowed_tokens`."""

    # The prefix is the whole key: `allowed_token` is refused as a mistake.
    class Params(Rule.Params, prefix="allowed_token"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field(alias="allowed_tokens", min_length=1)
