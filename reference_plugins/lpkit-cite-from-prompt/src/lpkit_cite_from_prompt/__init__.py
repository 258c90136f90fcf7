"""A logits processor for vLLM."""

from lpkit_cite_from_prompt.processor import CiteFromPrompt

__all__ = ["CiteFromPrompt"]
