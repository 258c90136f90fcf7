"""Five truncations, of which a request chooses one; the rule is `lpkit.rules.truncation`."""

from __future__ import annotations

from lpkit.rules.truncation import Truncation as Rule


class Truncation(Rule):
    """Mask the tokens that `truncation_rule` leaves out at `truncation_threshold`."""

    class Params(Rule.Params, prefix="truncation_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
