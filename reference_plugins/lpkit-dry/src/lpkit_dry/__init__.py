"""A logits processor for vLLM."""

from lpkit_dry.processor import Dry

__all__ = ["Dry"]
