"""Exported processors in transformers' own ``generate``."""

from __future__ import annotations

from typing import Any

import lpkit
import lpkit.export
import pytest
import torch
import transformers
from lpkit_penalties.processor import Penalties


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}], ids=["greedy", "beams", "sampled"])
def test_our_repetition_penalty_generates_what_transformers_own_does(model: Any, options: dict[str, Any]) -> None:
    prompts = torch.tensor([[5, 6, 7, 8], [9, 5, 9, 5]])
    options = {"max_new_tokens": 24, "pad_token_id": 0, **options}
    torch.manual_seed(1)
    theirs = model.generate(prompts, repetition_penalty=1.7, **options)
    torch.manual_seed(1)
    ours = lpkit.export.transformers(Penalties, repetition=1.7)
    assert torch.equal(model.generate(prompts, logits_processor=[ours], **options), theirs)
