"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_logit_bias import LogitBias

VOCAB = 8


def change(extra_args: dict[str, Any], logits: torch.Tensor | None = None, temperature: float = 1.0) -> list[float]:
    """Return the edited logits of a request with these parameters."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = LogitBias(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [4])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result: list[float] = processor.apply(torch.zeros(1, VOCAB) if logits is None else logits.unsqueeze(0))[0].tolist()
    return result


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_token_gets_its_bias(temperature: float) -> None:
    args = {"logit_bias_ids": [5, 0], "logit_bias_values": [-1.5, 2]}
    assert change(args, temperature=temperature) == [2.0, 0, 0, 0, 0, -1.5, 0, 0]


def test_masked_tokens_stay_masked() -> None:
    logits = torch.full((VOCAB,), -math.inf)
    logits[3] = 1.0
    args = {"logit_bias_ids": [2, 3], "logit_bias_values": [100, 1]}
    assert change(args, logits) == [-math.inf] * 3 + [2.0] + [-math.inf] * 4


def test_a_token_outside_the_vocabulary_declines_the_request() -> None:
    assert change({"logit_bias_ids": [1, VOCAB], "logit_bias_values": [1, 1]}) == [0.0] * VOCAB


@pytest.mark.parametrize(
    "extra_args",
    [
        {"logit_bias_ids": [1]},
        {"logit_bias_ids": [], "logit_bias_values": []},
        {"logit_bias_ids": [1, 2], "logit_bias_values": [1]},
        {"logit_bias_ids": [1, 1], "logit_bias_values": [1, 2]},
        {"logit_bias_ids": [1], "logit_bias_values": [100.5]},
        {"logit_bias_ids": [-1], "logit_bias_values": [1]},
        {"logit_bias_ids": 1, "logit_bias_values": 1},
        {"logit_bias_ids": list(range(1025)), "logit_bias_values": [1] * 1025},
        {"logit_bias_id": [1], "logit_bias_values": [1]},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="logit_bias_"):
        LogitBias.validate_params(SamplingParams(extra_args=extra_args))
