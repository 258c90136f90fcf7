"""A logits processor for vLLM."""

from lpkit_xtc.processor import Xtc

__all__ = ["Xtc"]
