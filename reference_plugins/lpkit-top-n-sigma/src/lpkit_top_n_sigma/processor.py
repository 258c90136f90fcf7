"""Top-n-sigma sampling; the rule is `lpkit.rules.top_n_sigma`."""

from __future__ import annotations

import lpkit
from lpkit.rules.top_n_sigma import TopNSigma as Rule


class TopNSigma(Rule):
    """Mask tokens more than `top_n_sigma` standard deviations below the likeliest one."""

    # The prefix is the whole key: `top_n_sigmas` is refused as a mistake.
    class Params(Rule.Params, prefix="top_n_sigma"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        n: float = lpkit.Field(alias="top_n_sigma", ge=0.0, le=100.0)
