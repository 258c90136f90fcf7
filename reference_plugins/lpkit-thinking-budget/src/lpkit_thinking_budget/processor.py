"""A budget of tokens for the reasoning; the rule is `lpkit.rules.thinking_budget`."""

from __future__ import annotations

from lpkit.rules.thinking_budget import ThinkingBudget as Rule


class ThinkingBudget(Rule):
    """Force `think_end` once `think_budget` tokens follow `think_start`."""

    class Params(Rule.Params, prefix="think_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
