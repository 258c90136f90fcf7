"""Our ``SamplingParams`` normalises and refuses as vLLM 0.32's does (compared in tests/engine)."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit.interfaces.sampling_params import SamplingParams, SamplingType


def test_only_zero_temperature_is_greedy_and_disables_the_filters() -> None:
    greedy = SamplingParams(temperature=0.0, top_p=0.5, top_k=7, min_p=0.1)
    assert (greedy.top_p, greedy.top_k, greedy.min_p) == (1.0, 0, 0.0)
    tiny = SamplingParams(temperature=1e-7, top_k=7)
    assert (tiny.temperature, tiny.top_k) == (0.01, 7)


def test_stop_tokens_and_words_become_lists_without_repeats() -> None:
    params = SamplingParams(stop="x", stop_token_ids=[3, 3, 1], bad_words=["b", "b"])
    assert (params.stop, params.stop_token_ids, params.bad_words) == (["x"], [3, 1], ["b"])
    assert params.all_stop_token_ids == {1, 3}
    assert SamplingParams().stop_token_ids == []


def test_stop_token_sets_are_not_shared() -> None:
    SamplingParams(stop_token_ids=[1])
    assert SamplingParams().all_stop_token_ids == set()


@pytest.mark.parametrize(
    "options",
    [
        {"n": 0},
        {"n": 2, "temperature": 0.0},
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": -2},
        {"min_p": 1.5},
        {"max_tokens": 0},
        {"min_tokens": 5, "max_tokens": 4},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("inf")},
        {"presence_penalty": 2.5},
        {"frequency_penalty": -2.5},
        {"bad_words": [""]},
        {"extra_args": {"deep": [{"x": 2**64}]}},
        {"extra_args": {"x": -(2**63) - 1}},
    ],
)
def test_values_that_vllm_refuses_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SamplingParams(**options)


def test_integers_up_to_64_unsigned_bits_pass_as_in_vllm() -> None:
    assert SamplingParams(extra_args={"x": 2**64 - 1, "y": -(2**63)}).extra_args


def test_a_clone_is_deep_unless_cloning_is_skipped() -> None:
    args: dict[str, Any] = {"x": [1]}
    assert SamplingParams(extra_args=args).clone().extra_args is not args
    assert SamplingParams(extra_args=args, skip_clone=True).clone().extra_args is args


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"temperature": 0.0, "seed": 3}, "GREEDY"),
        ({}, "RANDOM"),
        ({"seed": 0}, "RANDOM_SEED"),
        ({"seed": -1}, "RANDOM"),
    ],
)
def test_how_tokens_are_chosen_follows_temperature_and_seed(options: dict[str, Any], name: str) -> None:
    assert SamplingParams(**options).sampling_type is SamplingType[name]
