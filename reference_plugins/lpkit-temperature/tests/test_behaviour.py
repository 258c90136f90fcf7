"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_temperature import Temperature

LOGITS = [1.0, 3.0, 2.0, -math.inf]


def processed(extra_args: dict[str, Any], logits: list[float], temperature: float = 1.0) -> list[float]:
    """Return the logits of a request with these parameters, with the highest at 0."""
    processor = Temperature(make_config(max_num_seqs=4, vocab_size=len(logits)), torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result = processor.apply(torch.tensor([logits]))[0]
    return [round(x, 4) for x in (result - result.max()).tolist()]


def test_equal_logits_get_the_high_temperature() -> None:
    args = {"temperature_low": 0.5, "temperature_high": 4.0}
    assert processed(args, [2.0, 2.0 - 1e-4, 2.0, 2.0]) == [0.0, 0.0, 0.0, 0.0]
    assert processed(args, [0.0, -0.4, -math.inf, -math.inf])[1] == pytest.approx(-0.1, abs=0.01)


def test_a_decided_model_gets_the_low_temperature() -> None:
    assert processed({"temperature_low": 0.5, "temperature_high": 4.0}, [0.0, -30.0, -30.0]) == [0.0, -60.0, -60.0]


def test_low_and_high_alike_are_a_temperature() -> None:
    assert processed({"temperature_low": 2.0, "temperature_high": 2.0}, LOGITS) == [-1.0, 0.0, -0.5, -math.inf]


def test_smoothing_squares_the_distance_from_the_top() -> None:
    assert processed({"temperature_smoothing": 0.5}, LOGITS) == [-2.0, 0.0, -0.5, -math.inf]


def test_a_curve_of_three_cubes_it() -> None:
    args = {"temperature_smoothing": 0.5, "temperature_curve": 3.0}
    assert processed(args, LOGITS) == [-4.0, 0.0, -0.5, -math.inf]


def test_smoothing_comes_after_the_temperature() -> None:
    args = {"temperature_low": 2.0, "temperature_high": 2.0, "temperature_smoothing": 1.0}
    assert processed(args, LOGITS) == [-1.0, 0.0, -0.25, -math.inf]


def test_a_row_without_tokens_and_a_row_with_one_stay() -> None:
    args = {"temperature_high": 4.0, "temperature_smoothing": 1.0}
    assert processed(args, [-math.inf, 2.0, -math.inf]) == [-math.inf, 0.0, -math.inf]
    processor = Temperature(make_config(max_num_seqs=4, vocab_size=3), torch.device("cpu"), False)
    request = (0, SamplingParams(extra_args=args), [1], [])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    assert (processor.apply(torch.full((1, 3), -math.inf)) == -math.inf).all()


def test_a_request_that_asks_for_nothing_is_left_alone() -> None:
    for args in ({"other_plugins_key": 1}, {"temperature_low": 1.0}, {"temperature_curve": 2.0}):
        assert processed(args, LOGITS) == [-2.0, 0.0, -1.0, -math.inf]


@pytest.mark.parametrize(
    "extra_args",
    [
        {"temperature_low": 0.0},
        {"temperature_low": 2.0},
        {"temperature_low": 2.0, "temperature_high": 1.5},
        {"temperature_smoothing": -1.0},
        {"temperature_smoothing": 0.3, "temperature_curve": 4.0},
        {"temperature_highest": 2.0},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="temperature_"):
        Temperature.validate_params(SamplingParams(extra_args=extra_args))
