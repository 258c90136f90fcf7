"""A logits processor for vLLM."""

from lpkit_top_n_sigma.processor import TopNSigma

__all__ = ["TopNSigma"]
