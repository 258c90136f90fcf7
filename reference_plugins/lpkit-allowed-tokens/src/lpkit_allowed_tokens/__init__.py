"""A logits processor for vLLM."""

from lpkit_allowed_tokens.processor import AllowedTokens

__all__ = ["AllowedTokens"]
