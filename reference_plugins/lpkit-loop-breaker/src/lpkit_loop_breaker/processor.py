"""A way out of loops; the rule is `lpkit.rules.loop_breaker`."""

from __future__ import annotations

from lpkit.rules.loop_breaker import LoopBreaker as Rule


class LoopBreaker(Rule):
    """In a loop, take `loop_penalty` from the token that would go on with it, or force `loop_end`."""

    class Params(Rule.Params, prefix="loop_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
