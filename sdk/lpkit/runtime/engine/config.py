"""A stand-in for ``vllm_config``: the fields that processors commonly read, and nothing to load."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from lpkit.runtime.batch.device import pick_device

if TYPE_CHECKING:
    from lpkit.runtime.sampler.thinking import ThinkingMarkers

MODEL_NAME = "lpkit/reference"
"""The model that the configuration names, and the tokenizer unless it is told another. Neither exists."""


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
class Config:
    """Attribute for attribute a small part of vLLM's ``VllmConfig``; picklable."""

    scheduler_config: SchedulerConfig
    model_config: ModelConfig
    device_config: DeviceConfig
    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)
    speculative_config: None = None
    reasoning_config: SimpleNamespace | None = None
    lora_config: None = None
    additional_config: dict[str, Any] = field(default_factory=dict)


def make_config(
    *,
    max_num_seqs: int = 8,
    vocab_size: int = 512,
    max_model_len: int = 1024,
    async_scheduling: bool = False,
    max_num_batched_tokens: int = 8192,
    eos_token_id: int | None = None,
    device: str | torch.device = "cpu",
    thinking: ThinkingMarkers | None = None,
    tokenizer: str | None = None,
) -> Config:
    """Make what a processor's constructor gets as ``vllm_config``.

    Args:
        max_num_seqs: requests in the batch at most.
        vocab_size: columns of the logits.
        max_model_len: tokens of a request at most.
        async_scheduling: what the scheduler configuration says.
        max_num_batched_tokens: tokens fed per step.
        eos_token_id: the end-of-sequence token, if there is one.
        device: of the engine.
        thinking: the markers of thoughts, if the model has them.
        tokenizer: the folder of a tokenizer that exists.

    Returns:
        A small part of vLLM's ``VllmConfig``, attribute for attribute; picklable.
    """
    hf_config = SimpleNamespace(
        vocab_size=vocab_size,
        eos_token_id=eos_token_id,
        max_position_embeddings=max_model_len,
        model_type="llama",
    )
    named = {} if tokenizer is None else {"tokenizer": tokenizer, "skip_tokenizer_init": False}
    return Config(
        SchedulerConfig(max_num_seqs, max_num_batched_tokens, async_scheduling),
        ModelConfig(max_model_len, vocab_size, hf_config, **named),  # type: ignore[arg-type]
        DeviceConfig(pick_device(device)),
        reasoning_config=None if thinking is None else thinking.as_config(),
    )
