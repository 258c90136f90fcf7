"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_xtc import Xtc

PROBABILITIES = [0.2, 0.35, 0.1, 0.15, 0.12, 0.08]
ALL = list(range(6))


def kept(
    extra_args: dict[str, Any],
    probabilities: list[float] = PROBABILITIES,
    output: int = 1,
    temperature: float = 1.0,
    seed: int | None = None,
) -> list[int]:
    """The tokens left to a request with these parameters, if the engine already divided by the temperature."""
    config = make_config(max_num_seqs=4, vocab_size=len(probabilities))
    processor = Xtc(config, torch.device("cpu"), False)
    params = SamplingParams(temperature=temperature, seed=seed, extra_args=extra_args)
    request = (0, params, [1, 2, 3], [4] * output)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    logits = torch.tensor([probabilities]).log()
    result = processor.apply(logits.clone())
    left = result > -math.inf
    assert torch.equal(result[left], logits[left])  # what stays keeps its value
    return [token for token, stays in enumerate(left[0].tolist()) if stays]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.4, ALL), (0.3, ALL), (0.18, [0, 2, 3, 4, 5]), (0.14, [2, 3, 4, 5]), (0.09, [2, 5]), (0.01, [5])],
)
def test_of_the_likely_tokens_the_least_likely_stays(threshold: float, expected: list[int]) -> None:
    assert kept({"xtc_probability": 1, "xtc_threshold": threshold}) == expected


def test_tokens_that_tie_with_the_least_likely_stay() -> None:
    assert kept({"xtc_probability": 1}, [0.5, 0.2, 0.2, 0.1 - 1e-3, 1e-3]) == [1, 2, 3, 4]


def test_tokens_that_were_masked_before_stay_masked() -> None:
    assert kept({"xtc_probability": 1}, [0.5, 0.0, 0.3, 0.2]) == [1 + 2]
    assert kept({"xtc_probability": 1}, [0.0, 1.0, 0.0]) == [1]


def test_nothing_is_dropped_if_a_token_to_keep_would_be() -> None:
    args = {"xtc_probability": 1, "xtc_threshold": 0.14}
    assert kept({**args, "xtc_keep": [5, 1]}) == ALL
    assert kept({**args, "xtc_keep": [3, 2, 5]}) == [2, 3, 4, 5]


def test_the_coin_is_thrown_for_each_position_and_seed() -> None:
    args = {"xtc_probability": 0.5, "xtc_threshold": 0.01}
    throws = [tuple(kept({**args, "xtc_seed": seed}, output=n) == [5] for n in range(16)) for seed in range(4)]
    assert len(set(throws)) == 4
    assert all(3 <= sum(thrown) <= 13 for thrown in throws)
    by_request = tuple(kept(args, output=n, seed=2) == [5] for n in range(16))
    assert by_request == throws[2]
    assert tuple(kept(args, output=n) == [5] for n in range(16)) == throws[0]


@pytest.mark.parametrize(
    "extra_args",
    [{"other_plugins_key": 1}, {"xtc_probability": 0}, {"xtc_probability": 1, "xtc_threshold": 0.6}],
)
def test_a_request_that_does_not_ask_is_left_alone(extra_args: dict[str, Any]) -> None:
    assert kept(extra_args) == ALL


def test_a_greedy_request_is_left_alone() -> None:
    assert kept({"xtc_probability": 1, "xtc_threshold": 0.01}, temperature=0.0) == ALL


@pytest.mark.parametrize(
    "extra_args",
    [
        {"xtc_probability": 1.1},
        {"xtc_probability": 1, "xtc_threshold": 0},
        {"xtc_probability": 1, "xtc_seed": 0.5},
        {"xtc_probability": 1, "xtc_keep": [-1]},
        {"xtc_threshold": 0.1},
        {"xtc_probability": 1, "xtc_treshold": 0.1},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="xtc_"):
        Xtc.validate_params(SamplingParams(extra_args=extra_args))
