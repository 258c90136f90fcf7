"""What a processor's constructor gets as ``vllm_config``."""

from __future__ import annotations

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
        tokenizer: for ``lpkit.tokenizer``: the folder of one that exists, a tokenizer, or a function that makes one.

    Returns:
        A small part of vLLM's ``VllmConfig``, attribute for attribute; picklable.
    """
    hf_config = SimpleNamespace(
        vocab_size=vocab_size,
        eos_token_id=eos_token_id,
        max_position_embeddings=max_model_len,
        model_type="llama",
    )
    model = ModelConfig(max_model_len, vocab_size, hf_config, skip_tokenizer_init=tokenizer is None)
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
    """Say in ``config`` that there are drafts.

    Args:
        config: what :func:`make_config` returned.
        most: drafts per request and step at most.
        adaptive: whether fewer may be verified than were scheduled.
    """
    # With a drafter that goes with the rest: vLLM refuses others.
    if adaptive:
        found = SpeculativeConfig(most, "dspark", MODEL_NAME, None, None, enable_adaptive_verification=True)
    else:
        method = "ngram_gpu" if config.scheduler_config.async_scheduling else "ngram"
        found = SpeculativeConfig(most, method, method)
    config.speculative_config = found
