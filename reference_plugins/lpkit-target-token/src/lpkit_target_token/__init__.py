"""A logits processor for vLLM."""

from lpkit_target_token.processor import TargetToken

__all__ = ["TargetToken"]
