"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_top_n_sigma import TopNSigma

LOGITS = [9.0, 8.0, 5.0, 4.0, 4.0, 4.0, 3.0, 3.0]  # mean 5, variance 4.5, deviation 2.12


def kept(extra_args: dict[str, Any], logits: list[float] = LOGITS, temperature: float = 1.0) -> list[int]:
    """The tokens left to a request with these parameters, if the engine already divided by the temperature."""
    config = make_config(max_num_seqs=4, vocab_size=len(logits))
    processor = TopNSigma(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [4])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    given = torch.tensor([logits])
    result = processor.apply(given.clone())
    left = result > -math.inf
    assert torch.equal(result[left], given[left])  # what stays keeps its value
    return [token for token, stays in enumerate(left[0].tolist()) if stays]


@pytest.mark.parametrize(
    ("n", "expected"), [(0, [0]), (0.4, [0]), (0.5, [0, 1]), (1.8, [0, 1]), (2, [0, 1, 2]), (3, list(range(8)))]
)
def test_tokens_further_than_n_deviations_below_the_highest_go(n: float, expected: list[int]) -> None:
    assert kept({"top_n_sigma": n}) == expected


def test_tokens_that_were_masked_before_do_not_count() -> None:
    masked = [value for pair in zip(LOGITS, [-math.inf] * 8, strict=True) for value in pair]
    for n in (0.4, 0.5, 2, 3):
        assert kept({"top_n_sigma": n}, masked) == [2 * token for token in kept({"top_n_sigma": n})]


def test_equal_logits_all_stay() -> None:
    assert kept({"top_n_sigma": 0.1}, [2.0] * 4) == [0, 1, 2, 3]


def test_a_row_with_one_token_or_none_stays_as_it_is() -> None:
    assert kept({"top_n_sigma": 0.1}, [-math.inf, 3.0, -math.inf]) == [1]
    assert kept({"top_n_sigma": 0.1}, [-math.inf] * 3) == []


def test_a_greedy_request_is_left_alone() -> None:
    assert kept({"top_n_sigma": 0.5}, temperature=0.0) == list(range(8))


@pytest.mark.parametrize(
    "extra_args", [{"top_n_sigma": -1}, {"top_n_sigma": "one"}, {"top_n_sigma": True}, {"top_n_sigmas": 1}]
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="top_n_sigma"):
        TopNSigma.validate_params(SamplingParams(extra_args=extra_args))
