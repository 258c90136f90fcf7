"""Imports a name that vLLM has and lpkit's stand-in has not."""

from vllm import AsyncLLMEngine
from vllm.v1.sample.logits_processor import LogitsProcessor


class NeedsLLM(LogitsProcessor):
    engine = AsyncLLMEngine
