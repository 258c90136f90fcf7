"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_loop_breaker import LoopBreaker

VOCAB = 16
THRICE = {"loop_times": 3, "loop_tokens": 6}


def changes(extra_args: dict[str, Any], output_ids: list[int], logits: torch.Tensor | None = None) -> dict[int, float]:
    """Each changed token, and by how much, for a request with these parameters that has generated `output_ids`."""
    logits = torch.zeros(VOCAB) if logits is None else logits
    processor = LoopBreaker(make_config(max_num_seqs=4, vocab_size=VOCAB), torch.device("cpu"), False)
    request = (0, SamplingParams(extra_args=extra_args), [1, 2, 1, 2, 1, 2], output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    difference = processor.apply(logits.clone().unsqueeze(0))[0] - logits
    return {token: by for token, by in enumerate(difference.tolist()) if by}


def test_the_token_that_goes_on_with_the_loop_is_lowered() -> None:
    assert changes(THRICE, [9, 1, 2, 1, 2, 1, 2]) == {1: -100.0}
    assert changes({**THRICE, "loop_penalty": 4.0}, [1, 2, 1, 2, 1, 2, 1]) == {2: -4.0}


def test_a_loop_can_end_the_reply() -> None:
    assert changes({**THRICE, "loop_end": [7]}, [1, 2, 1, 2, 1, 2]) == dict.fromkeys({*range(VOCAB)} - {7}, -math.inf)


@pytest.mark.parametrize(
    ("output_ids", "due"),
    [([1, 2] * 3, 7), ([1, 2] * 3 + [7], 8), ([1, 2] * 3 + [7, 8], 3), ([1, 2] * 3 + [7, 8, 3], None), ([7], None)],
)
def test_an_end_of_several_tokens_is_forced_to_its_last(output_ids: list[int], due: int | None) -> None:
    others = {} if due is None else dict.fromkeys({*range(VOCAB)} - {due}, -math.inf)
    assert changes({**THRICE, "loop_end": [7, 8, 3]}, output_ids) == others


def test_an_end_may_begin_with_a_token_of_the_loop() -> None:
    due = dict.fromkeys({*range(VOCAB)} - {8}, -math.inf)
    assert changes({**THRICE, "loop_end": [2, 8]}, [1, 2] * 3 + [2]) == due
    assert set(changes({**THRICE, "loop_end": [2, 8]}, [1, 2] * 3)) == {*range(VOCAB)} - {2}


def test_an_end_that_begins_again_within_itself_is_declined(caplog: pytest.LogCaptureFixture) -> None:
    assert changes({**THRICE, "loop_end": [7, 7, 8]}, [1, 2] * 3) == {}
    assert "its first token occurs again before its last" in caplog.text


def test_an_end_that_is_masked_is_not_forced() -> None:
    logits = torch.zeros(VOCAB)
    logits[7] = -math.inf
    assert {key: by for key, by in changes({**THRICE, "loop_end": [7]}, [1, 2] * 3, logits).items() if by == by} == {}


@pytest.mark.parametrize(
    "output_ids", [[], [1], [1, 2, 1, 2, 1], [1, 2, 1, 2, 3, 2], [1, 2, 3, 1, 2, 3], [5, 5, 5, 5, 5]]
)
def test_too_few_repetitions_or_tokens_are_no_loop(output_ids: list[int]) -> None:
    assert changes(THRICE, output_ids) == {}


def test_the_prompt_does_not_count() -> None:
    assert changes(THRICE, [1, 2]) == {}


@pytest.mark.parametrize(
    "extra_args",
    [{"loop_times": 1}, {"loop_tokens": 9}, {"loop_times": 3, "loop_penalty": 0.0}, {"loop_times": 3, "loop_ends": 2}],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="loop_"):
        LoopBreaker.validate_params(SamplingParams(extra_args=extra_args))
