"""A logits processor for vLLM."""

from lpkit_synthid.processor import SynthId

__all__ = ["SynthId"]
