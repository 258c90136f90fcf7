"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_dry import Dry

VOCAB = 16


def penalties(
    extra_args: dict[str, Any],
    prompt_ids: list[int],
    output_ids: list[int],
    temperature: float = 1.0,
) -> dict[int, float]:
    """Return the penalties for a request with these parameters and tokens, by token."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = Dry(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), prompt_ids, output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    loss = -processor.apply(torch.zeros(1, VOCAB))[0]
    return {token: round(value, 5) for token, value in enumerate(loss.tolist()) if value}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_token_that_continues_a_repetition_is_penalized_by_its_length(temperature: float) -> None:
    args = {"dry_multiplier": 0.8, "dry_base": 2}
    assert penalties(args, [1], [4, 5, 6, 4], temperature) == {}  # one token repeated: allowed
    assert penalties(args, [1], [4, 5, 6, 4, 5], temperature) == {6: 0.8}
    assert penalties(args, [1], [3, 4, 5, 6, 3, 4, 5], temperature) == {6: 1.6}
    assert penalties(args, [1], [2, 3, 4, 5, 6, 2, 3, 4, 5], temperature) == {6: 3.2}


def test_the_allowed_length_is_a_choice() -> None:
    assert penalties({"dry_multiplier": 1, "dry_allowed_length": 1, "dry_base": 2}, [1], [4, 5, 6, 4, 5]) == {6: 2.0}
    assert penalties({"dry_multiplier": 1, "dry_allowed_length": 3}, [1], [4, 5, 6, 4, 5]) == {}


def test_the_longest_repetition_counts() -> None:
    args = {"dry_multiplier": 1, "dry_base": 2}
    # 6 followed "4 5" once and "3 4 5" once; 7 followed "4 5".
    assert penalties(args, [1], [4, 5, 6, 3, 4, 5, 6, 4, 5, 7, 3, 4, 5]) == {6: 2.0, 7: 1.0}


def test_the_prompt_counts() -> None:
    assert penalties({"dry_multiplier": 1}, [4, 5, 6], [4, 5]) == {6: 1.0}


def test_repetitions_may_overlap_themselves() -> None:
    assert penalties({"dry_multiplier": 1, "dry_base": 2}, [1], [4, 4, 4, 4]) == {4: 2.0}


def test_breakers_end_repetitions_and_are_never_penalized() -> None:
    args = {"dry_multiplier": 1, "dry_base": 2, "dry_breakers": [9]}
    assert penalties(args, [1], [3, 9, 4, 5, 6, 3, 9, 4, 5]) == {6: 1.0}  # "4 5", not "3 9 4 5"
    assert penalties(args, [1], [3, 4, 9, 6, 3, 4, 9]) == {}
    assert penalties(args, [1], [4, 5, 9, 4, 5]) == {}


def test_what_lies_before_the_range_is_forgotten() -> None:
    tokens = [3, 4, 5, 6, 3, 4, 5]
    args = {"dry_multiplier": 1, "dry_base": 2}
    assert penalties({**args, "dry_range": 7}, [1], tokens) == {6: 2.0}
    assert penalties({**args, "dry_range": 6}, [1], tokens) == {6: 1.0}
    assert penalties({**args, "dry_range": 5}, [1], tokens) == {}


def test_a_very_long_repetition_costs_a_finite_penalty() -> None:
    loss = penalties({"dry_multiplier": 1000, "dry_base": 8}, [1], [4, 5] * 400)
    assert loss.keys() == {4}
    assert math.isfinite(loss[4])


@pytest.mark.parametrize(
    "extra_args",
    [
        {"dry_multiplier": 0},
        {"dry_multiplier": 1, "dry_base": 0.9},
        {"dry_multiplier": 1, "dry_allowed_length": 0},
        {"dry_multiplier": 1, "dry_range": -1},
        {"dry_multiplier": 1, "dry_breakers": [""]},
        {"dry_base": 2.0},
        {"dry_multiplier": 1, "dry_sequence_breakers": [4]},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="dry_"):
        Dry.validate_params(SamplingParams(extra_args=extra_args))
