"""A logits processor for vLLM."""

from lpkit_truncation.processor import Truncation

__all__ = ["Truncation"]
