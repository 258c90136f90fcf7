"""A logits processor for vLLM."""

from lpkit_logit_bias.processor import LogitBias

__all__ = ["LogitBias"]
