"""A logits processor for vLLM."""

from lpkit_ocr_ngram.processor import OcrNgram

__all__ = ["OcrNgram"]
