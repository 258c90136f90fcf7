"""A logits processor for vLLM."""

from lpkit_temperature.processor import Temperature

__all__ = ["Temperature"]
