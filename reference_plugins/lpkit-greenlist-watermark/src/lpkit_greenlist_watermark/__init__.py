"""A logits processor for vLLM."""

from lpkit_greenlist_watermark.processor import GreenlistWatermark

__all__ = ["GreenlistWatermark"]
