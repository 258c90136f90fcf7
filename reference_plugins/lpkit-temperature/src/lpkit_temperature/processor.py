"""A temperature that follows the model; the rule is `lpkit.rules.temperature`."""

from __future__ import annotations

from lpkit.rules.temperature import Temperature as Rule


class Temperature(Rule):
    """Divide by a temperature that depends on the entropy, and bend the logits by `temperature_smoothing`."""

    class Params(Rule.Params, prefix="temperature_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
