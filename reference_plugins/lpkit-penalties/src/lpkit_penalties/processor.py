"""Penalties for tokens that occurred before; the rule is `lpkit.rules.penalties`."""

from __future__ import annotations

from lpkit.rules.penalties import Penalties as Rule


class Penalties(Rule):
    """Lower the logits of earlier tokens: repetition for prompt and output, presence and frequency for the output."""

    class Params(Rule.Params, prefix="penalties_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
