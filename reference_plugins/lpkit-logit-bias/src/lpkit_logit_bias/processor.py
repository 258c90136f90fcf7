"""Logit bias; the rule is `lpkit.rules.logit_bias`."""

from __future__ import annotations

from lpkit.rules.logit_bias import LogitBias as Rule


class LogitBias(Rule):
    """Add `logit_bias_values` to the logits of `logit_bias_ids`."""

    class Params(Rule.Params, prefix="logit_bias_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
