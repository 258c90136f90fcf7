"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_target_token import TargetToken

VOCAB = 32


def processed(extra_args: dict[str, Any], logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """The logits of a request with these parameters."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = TargetToken(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [4])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    return processor.apply(logits.clone().unsqueeze(0))[0]


@pytest.mark.parametrize("token", [0, 7, VOCAB - 1])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_keeps_its_logit_and_every_other_token_goes(token: int, temperature: float) -> None:
    logits = torch.linspace(-2.0, 3.0, VOCAB)
    expected = torch.full((VOCAB,), -math.inf)
    expected[token] = logits[token]
    assert torch.equal(processed({"target_token": token}, logits, temperature), expected)


def test_a_target_that_is_masked_already_is_not_forced() -> None:
    logits = torch.zeros(VOCAB)
    logits[7] = -math.inf
    assert torch.equal(processed({"target_token": 7}, logits), logits)


def test_a_request_that_does_not_ask_is_left_alone() -> None:
    logits = torch.linspace(-2.0, 3.0, VOCAB)
    assert torch.equal(processed({"target_length": 7}, logits), logits)


def test_a_token_outside_the_vocabulary_is_not_forced() -> None:
    logits = torch.linspace(-2.0, 3.0, VOCAB)
    assert torch.equal(processed({"target_token": VOCAB}, logits), logits)


@pytest.mark.parametrize(
    "extra_args",
    [
        {"target_token": -1},
        {"target_token": 7.5},
        {"target_token": True},
        {"target_token": "seven"},
        {"target_tokens": 7},
        {"target_token_id": 7},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="target_token"):
        TargetToken.validate_params(SamplingParams(extra_args=extra_args))
