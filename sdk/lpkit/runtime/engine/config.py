"""The ``vllm_config`` of a processor's constructor."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from lpkit.interfaces.config import (
    MODEL_NAME,
    Config,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from lpkit.runtime.batch.device import pick_device

if TYPE_CHECKING:
    from lpkit.runtime.sampler.thinking import ThinkingMarkers


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
        eos_token_id: the end-of-sequence token, or None.
        device: of the engine.
        thinking: the markers of thoughts, or None.
        tokenizer: for ``lpkit.tokenizer``: a tokenizer, its folder, or a function that makes a tokenizer.
        hf_config: further fields of the model's configuration.

    Returns:
        A small part of vLLM's ``VllmConfig`` with the same attribute names; picklable.
    """
    fields = {
        "vocab_size": vocab_size,
        "eos_token_id": eos_token_id,
        "max_position_embeddings": max_model_len,
        "model_type": "llama",
        **(hf_config or {}),
    }
    model = ModelConfig(max_model_len, vocab_size, SimpleNamespace(**fields), skip_tokenizer_init=tokenizer is None)
    if isinstance(tokenizer, str):
        model.tokenizer = tokenizer
    else:
        model.lpkit_tokenizer = tokenizer
    return Config(
        SchedulerConfig(max_num_seqs, max_num_batched_tokens, async_scheduling),
        model,
        DeviceConfig(pick_device(device)),
        reasoning_config=None if thinking is None else thinking.as_config(),
    )


def speculate(config: Config, most: int, *, adaptive: bool = False) -> None:
    """Enable drafts in ``config``.

    Args:
        config: what :func:`make_config` returned.
        most: most drafts per request and step.
        adaptive: True if the engine may verify fewer drafts than it scheduled.
    """
    # The method must suit the other settings, or vLLM refuses it.
    if adaptive:
        speculative = SpeculativeConfig(most, "dspark", MODEL_NAME, None, None, enable_adaptive_verification=True)
    else:
        method = "ngram_gpu" if config.scheduler_config.async_scheduling else "ngram"
        speculative = SpeculativeConfig(most, method, method)
    config.speculative_config = speculative
