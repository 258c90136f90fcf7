"""A logits processor for vLLM."""

from lpkit_penalties.processor import Penalties

__all__ = ["Penalties"]
