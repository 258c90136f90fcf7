"""A stand-in for ``vllm_config``: the fields that processors commonly read, without loading anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

MODEL_NAME = "lpkit/reference"
"""Default name of the model and of its tokenizer. Neither exists."""


@dataclass
class SchedulerConfig:
    max_num_seqs: int
    max_num_batched_tokens: int
    async_scheduling: bool
    enable_chunked_prefill: bool = True


@dataclass
class ModelConfig:
    max_model_len: int
    vocab_size: int
    hf_config: SimpleNamespace
    model: str = MODEL_NAME
    tokenizer: str = MODEL_NAME
    tokenizer_mode: str = "auto"
    tokenizer_revision: str | None = None
    revision: str | None = None
    skip_tokenizer_init: bool = True
    trust_remote_code: bool = False
    runner_type: str = "generate"
    is_multimodal_model: bool = False
    dtype: torch.dtype = torch.float32
    seed: int = 0
    max_logprobs: int = 20
    logits_processors: list[Any] | None = None
    lpkit_tokenizer: Any = None  # a host's own tokenizer, or a function that makes it; vLLM has no such field

    @property
    def hf_text_config(self) -> SimpleNamespace:
        return self.hf_config

    def get_vocab_size(self) -> int:
        return self.vocab_size


@dataclass
class ParallelConfig:
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    world_size: int = 1
    rank: int = 0


@dataclass
class CacheConfig:
    block_size: int = 16


@dataclass
class DeviceConfig:
    device: torch.device

    @property
    def device_type(self) -> str:
        return self.device.type


@dataclass
class SpeculativeConfig:
    """Speculative decoding, by default with n-gram lookup in the text so far."""

    num_speculative_tokens: int
    method: str = "ngram"
    model: str = "ngram"
    prompt_lookup_max: int | None = 5
    prompt_lookup_min: int | None = 5
    parallel_drafting: bool = False
    disable_padded_drafter_batch: bool = False
    rejection_sample_method: str = "standard"
    enable_adaptive_verification: bool = False

    def use_eagle(self) -> bool:
        return self.method in ("eagle", "eagle3", "mtp", "dflash", "dspark")

    def use_ngram(self) -> bool:
        return self.method in ("ngram", "ngram_gpu")

    def use_ngram_gpu(self) -> bool:
        return self.method == "ngram_gpu"

    def uses_draft_model(self) -> bool:
        return self.method == "draft_model"


@dataclass
class Config:
    """A small part of vLLM's ``VllmConfig`` with the same attribute names; picklable."""

    scheduler_config: SchedulerConfig
    model_config: ModelConfig
    device_config: DeviceConfig
    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)
    speculative_config: SpeculativeConfig | None = None
    reasoning_config: SimpleNamespace | None = None
    lora_config: None = None
    additional_config: dict[str, Any] = field(default_factory=dict)

    @property
    def max_concurrent_batches(self) -> int:
        """Number of steps in flight at once on the V2 runner."""
        return self.parallel_config.pipeline_parallel_size + self.scheduler_config.async_scheduling
