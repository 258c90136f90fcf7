"""Our ``SamplingParams``; ``tests/engine/test_interfaces.py`` compares what it makes of its values with vLLM's."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit.interfaces.sampling_params import SamplingParams


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


def test_a_clone_is_deep_unless_cloning_is_skipped() -> None:
    args: dict[str, Any] = {"x": [1]}
    assert SamplingParams(extra_args=args).clone().extra_args is not args
    assert SamplingParams(extra_args=args, skip_clone=True).clone().extra_args is args
