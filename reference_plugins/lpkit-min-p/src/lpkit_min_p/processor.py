"""Min-p sampling; the rule is `lpkit.rules.min_p`."""

from __future__ import annotations

from lpkit.rules.min_p import MinP as Rule


class MinP(Rule):
    """Mask tokens less likely than `min_p_threshold` times the likeliest one."""

    class Params(Rule.Params, prefix="min_p_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
