"""XTC, exclude top choices; the rule is `lpkit.rules.xtc`."""

from __future__ import annotations

from lpkit.rules.xtc import Xtc as Rule


class Xtc(Rule):
    """With `xtc_probability`, drop the tokens above `xtc_threshold` but for the least likely of them."""

    class Params(Rule.Params, prefix="xtc_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
