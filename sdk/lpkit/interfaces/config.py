"""A stand-in for ``vllm_config``: its fields of plain data, without loading anything.

``config.json`` has vLLM's names for which lpkit has no use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

MODEL_NAME = "lpkit/reference"
"""Name of the model and of its tokenizer where no folder is given. Neither exists."""


@cache
def _vllms(cls: str) -> tuple[dict[str, Any], frozenset[str]]:
    """Return vLLM's names that a class of this module lacks: those with a plain value, and all others."""
    part = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).get(cls, {})
    return part.get("values", {}), frozenset(part.get("others", ()))


class ConfigPart:
    """A part of the configuration. vLLM's further fields have the values that vLLM gives them by default."""

    def __post_init__(self) -> None:
        values, _ = _vllms(type(self).__name__)
        copies = {name: value.copy() for name, value in values.items() if type(value) in (list, dict)}
        vars(self).update({**values, **copies})

    @classmethod
    def lacks(cls, name: str) -> bool:
        """Return True if vLLM has the name, with an object, a method, or a value that depends on other settings."""
        return any(name in _vllms(base.__name__)[1] for base in cls.__mro__)


@dataclass
class SchedulerConfig(ConfigPart):
    max_num_seqs: int
    max_num_batched_tokens: int
    async_scheduling: bool


@dataclass
class ModelConfig(ConfigPart):
    max_model_len: int
    vocab_size: int
    hf_config: SimpleNamespace
    model: str = MODEL_NAME
    tokenizer: str = MODEL_NAME
    served_model_name: str = MODEL_NAME
    skip_tokenizer_init: bool = True
    runner_type: str = "generate"
    dtype: torch.dtype = torch.float32
    lpkit_tokenizer: Any = None  # a host's own tokenizer, or a function that makes it; vLLM has no such field

    @property
    def hf_text_config(self) -> SimpleNamespace:
        return self.hf_config

    def get_vocab_size(self) -> int:
        return self.vocab_size

    def get_sliding_window(self) -> int | None:
        window: int | None = getattr(self.hf_text_config, "sliding_window", None)
        return window

    def get_total_num_kv_heads(self) -> int:
        return int(getattr(self.hf_config, "num_key_value_heads", None) or self.hf_config.num_attention_heads)


@dataclass
class ParallelConfig(ConfigPart):
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    world_size: int = 1
    rank: int = 0


@dataclass
class CacheConfig(ConfigPart):
    block_size: int = 16


@dataclass
class DeviceConfig(ConfigPart):
    device: torch.device

    @property
    def device_type(self) -> str:
        return self.device.type


@dataclass
class SpeculativeConfig(ConfigPart):
    """Speculative decoding, by default with n-gram lookup in the text so far."""

    num_speculative_tokens: int
    method: str = "ngram"
    model: str = "ngram"
    prompt_lookup_max: int | None = 5
    prompt_lookup_min: int | None = 5
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
class Config(ConfigPart):
    """A small part of vLLM's ``VllmConfig`` with the same attribute names; picklable."""

    scheduler_config: SchedulerConfig
    model_config: ModelConfig
    device_config: DeviceConfig
    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)
    speculative_config: SpeculativeConfig | None = None
    reasoning_config: SimpleNamespace | None = None
    additional_config: dict[str, Any] = field(default_factory=dict)

    @property
    def max_concurrent_batches(self) -> int:
        """Number of steps in flight at once on the V2 runner."""
        return self.parallel_config.pipeline_parallel_size + self.scheduler_config.async_scheduling

    @property
    def num_speculative_tokens(self) -> int:
        return 0 if self.speculative_config is None else self.speculative_config.num_speculative_tokens

    def speculate(self, most: int, *, adaptive: bool = False) -> None:
        """Enable drafts, at most ``most`` per request and step; adaptive: fewer may be verified than were scheduled."""
        # The method must suit the other settings, or vLLM refuses it.
        if adaptive:
            speculative = SpeculativeConfig(most, "dspark", MODEL_NAME, None, None, enable_adaptive_verification=True)
        else:
            method = "ngram_gpu" if self.scheduler_config.async_scheduling else "ngram"
            speculative = SpeculativeConfig(most, method, method)
        self.speculative_config = speculative


@dataclass(frozen=True)
class ThinkingMarkers:
    """Token sequences that begin and end a thought, as vLLM's ``reasoning_config`` resolves them.

    Attributes:
        start, end: tokens that open a thought, and tokens forced to close it.
        natural_end: tokens that close it when the model writes them (V2 only); by default ``end``.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    natural_end: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        """True if a thought can begin and end; without both markers there is no budget."""
        return bool(self.start and self.end)

    def as_config(self) -> SimpleNamespace:
        """Return the fields of ``vllm_config.reasoning_config`` after vLLM has resolved them; the texts are unknown."""
        return SimpleNamespace(
            enabled=self.complete,
            reasoning_parser="",
            reasoning_start_str="",
            reasoning_end_str="",
            reasoning_start_token_ids=list(self.start),
            reasoning_end_token_ids=list(self.end),
            natural_reasoning_end_token_ids=list(self.natural_end or self.end),
        )


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
    tokenizer: Any = None,
    hf_config: Mapping[str, Any] | None = None,
) -> Config:
    """Make the ``vllm_config`` for a processor's constructor.

    Args:
        max_num_seqs: most requests in the batch.
        vocab_size: columns of the logits.
        max_model_len: most tokens of a request.
        async_scheduling: value in the scheduler configuration.
        max_num_batched_tokens: tokens fed per step.
        eos_token_id: the end-of-sequence token; None: the tokenizer's, if it has one.
        device: of the engine.
        thinking: the markers of thoughts, or None.
        tokenizer: for ``lpkit.tokenizer``: a tokenizer, its folder, or a function that makes a tokenizer. The folder is
            that of the model, too.
        hf_config: further fields of the model's configuration.

    Returns:
        A small part of vLLM's ``VllmConfig`` with the same attribute names; picklable.
    """
    fields = {
        "vocab_size": vocab_size,
        "eos_token_id": getattr(tokenizer, "eos_token_id", None) if eos_token_id is None else eos_token_id,
        "max_position_embeddings": max_model_len,
        "model_type": "llama",
        "num_attention_heads": 2,
        **(hf_config or {}),
    }
    model = ModelConfig(max_model_len, vocab_size, SimpleNamespace(**fields), skip_tokenizer_init=tokenizer is None)
    if isinstance(tokenizer, str):
        # In vLLM the model's folder has the tokenizer, too, and is the name under which the model is served.
        model.tokenizer = model.model = model.served_model_name = tokenizer
    else:
        model.lpkit_tokenizer = tokenizer
    return Config(
        SchedulerConfig(max_num_seqs, max_num_batched_tokens, async_scheduling),
        model,
        DeviceConfig(torch.device(device)),
        reasoning_config=None if thinking is None else thinking.as_config(),
    )
