"""A logits processor for vLLM."""

from lpkit_min_p.processor import MinP

__all__ = ["MinP"]
