"""A logits processor for vLLM."""

from lpkit_rules.processor import Rules

__all__ = ["Rules"]
