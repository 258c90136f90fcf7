"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_penalties import Penalties

LOGITS = [4.0, -4.0, 4.0, -4.0, 4.0, -4.0]


def penalized(
    extra_args: dict[str, Any],
    prompt_ids: list[int],
    output_ids: list[int],
    logits: list[float] = LOGITS,
    temperature: float = 1.0,
) -> list[float]:
    """Return the edited logits of a request with these parameters and tokens."""
    config = make_config(max_num_seqs=4, vocab_size=len(logits))
    processor = Penalties(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), prompt_ids, output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result: list[float] = processor.apply(torch.tensor([logits]))[0].tolist()
    return result


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_repetition_counts_prompt_and_output_and_shrinks_either_sign(temperature: float) -> None:
    args = {"penalties_repetition": 2}
    assert penalized(args, [0, 1], [2, 3, 3], temperature=temperature) == [2.0, -8.0, 2.0, -8.0, 4.0, -4.0]


def test_presence_counts_each_output_token_once() -> None:
    assert penalized({"penalties_presence": 1.5}, [0, 1], [2, 3, 3]) == [4.0, -4.0, 2.5, -5.5, 4.0, -4.0]


def test_frequency_counts_every_occurrence_in_the_output() -> None:
    assert penalized({"penalties_frequency": 0.5}, [3, 4], [2, 3, 3, 0]) == [3.5, -4.0, 3.5, -5.0, 4.0, -4.0]


def test_all_three_together_repetition_first() -> None:
    args = {"penalties_repetition": 2, "penalties_presence": 1, "penalties_frequency": 0.5}
    assert penalized(args, [0], [2, 2, 3]) == [2.0, -4.0, 0.0, -9.5, 4.0, -4.0]


def test_values_on_the_other_side_reward() -> None:
    args = {"penalties_repetition": 0.5, "penalties_presence": -1}
    assert penalized(args, [0], [1]) == [8.0, -1.0, 4.0, -4.0, 4.0, -4.0]


def test_nothing_is_penalized_before_the_first_output_token_but_for_repetition() -> None:
    assert penalized({"penalties_presence": 2, "penalties_frequency": 2}, [0, 1], []) == LOGITS


def test_masked_tokens_stay_masked() -> None:
    args = {"penalties_repetition": 0.5, "penalties_presence": -2, "penalties_frequency": -2}
    assert penalized(args, [0], [1, 1], [-math.inf, -math.inf, 1.0]) == [-math.inf, -math.inf, 1.0]


@pytest.mark.parametrize("extra_args", [{"other_plugins_key": 1}, {"penalties_repetition": 1, "penalties_presence": 0}])
def test_a_request_that_does_not_ask_is_left_alone(extra_args: dict[str, Any]) -> None:
    assert penalized(extra_args, [0, 1], [2, 3, 3]) == LOGITS


@pytest.mark.parametrize(
    "extra_args",
    [
        {"penalties_repetition": 0},
        {"penalties_presence": 2.1},
        {"penalties_frequency": "much"},
        {"penalties_frequency": True},
        {"penalties_repetitions": 1.2},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="penalties_"):
        Penalties.validate_params(SamplingParams(extra_args=extra_args))
