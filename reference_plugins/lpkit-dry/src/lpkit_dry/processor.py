"""DRY, a penalty for continuing a repetition; the rule is `lpkit.rules.dry`."""

from __future__ import annotations

from lpkit.rules.dry import Dry as Rule


class Dry(Rule):
    """Penalize tokens that would continue a repetition, by `dry_multiplier` and more."""

    class Params(Rule.Params, prefix="dry_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
