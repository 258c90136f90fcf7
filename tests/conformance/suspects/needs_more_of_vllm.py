"""Imports a part of vLLM that serves models."""

from vllm.model_executor.layers import linear
from vllm.v1.sample.logits_processor import LogitsProcessor


class NeedsMore(LogitsProcessor):
    layer = linear
