"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_min_p import MinP

# Probabilities of eight tokens, as logits.
PROBABILITIES = [0.4, 0.2, 0.2, 0.1, 0.04, 0.03, 0.02, 0.01]


def kept(extra_args: dict[str, Any], logits: torch.Tensor | None = None, temperature: float = 1.0) -> list[int]:
    """The tokens left to a request with these parameters, if the engine already divided by the temperature."""
    if logits is None:
        logits = torch.tensor(PROBABILITIES).log()
    config = make_config(max_num_seqs=4, vocab_size=len(logits))
    processor = MinP(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [4])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result = processor.apply(logits.clone().unsqueeze(0))[0]
    left = result > -math.inf
    assert torch.equal(result[left], logits[left])  # what stays keeps its value
    return [token for token, stays in enumerate(left.tolist()) if stays]


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.9, [0]), (0.4, [0, 1, 2]), (0.2, [0, 1, 2, 3]), (0.06, [0, 1, 2, 3, 4, 5])]
)
def test_tokens_below_the_share_of_the_likeliest_go(threshold: float, expected: list[int]) -> None:
    assert kept({"min_p_threshold": threshold}) == expected


def test_zero_keeps_everything() -> None:
    assert kept({"min_p_threshold": 0}) == list(range(8))


def test_one_keeps_the_likeliest_and_its_equals() -> None:
    assert kept({"min_p_threshold": 1}) == [0]
    assert kept({"min_p_threshold": 1}, torch.tensor([2.0, 5.0, 5.0, 1.0])) == [1, 2]


def test_tokens_that_were_masked_before_stay_masked() -> None:
    logits = torch.tensor([1.0, -math.inf, 1.0])
    assert kept({"min_p_threshold": 0.001}, logits) == [0, 2]


def test_a_greedy_request_is_left_alone() -> None:
    assert kept({"min_p_threshold": 0.9}, temperature=0.0) == list(range(8))


@pytest.mark.parametrize(
    "extra_args",
    [
        {"min_p_threshold": -0.1},
        {"min_p_threshold": 1.1},
        {"min_p_threshold": "high"},
        {"min_p_threshold": True},
        {"min_p_treshold": 0.1},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="min_p_"):
        MinP.validate_params(SamplingParams(extra_args=extra_args))
