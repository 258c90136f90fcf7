"""A logits processor for vLLM."""

from my_proc.processor import MyProc

__all__ = ["MyProc"]
