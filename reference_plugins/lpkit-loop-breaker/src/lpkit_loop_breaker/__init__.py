"""A logits processor for vLLM."""

from lpkit_loop_breaker.processor import LoopBreaker

__all__ = ["LoopBreaker"]
