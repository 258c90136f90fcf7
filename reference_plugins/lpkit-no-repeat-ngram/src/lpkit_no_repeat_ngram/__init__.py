"""A logits processor for vLLM."""

from lpkit_no_repeat_ngram.processor import NoRepeatNgram

__all__ = ["NoRepeatNgram"]
