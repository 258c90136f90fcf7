"""A logits processor for vLLM."""

from lpkit_forced_sequence.processor import ForcedSequence

__all__ = ["ForcedSequence"]
