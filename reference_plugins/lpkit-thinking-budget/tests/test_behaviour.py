"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_thinking_budget import ThinkingBudget

VOCAB = 16
ARGS = {"think_budget": 3, "think_start": [4, 5], "think_end": [6, 7, 6, 8]}


def forced(
    prompt_ids: list[int],
    output_ids: list[int],
    extra_args: dict[str, Any] = ARGS,
    masked: tuple[int, ...] = (),
    temperature: float = 1.0,
) -> int | None:
    """The token that is forced on a request with these tokens; None if it may choose."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = ThinkingBudget(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), prompt_ids, output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    logits = torch.linspace(-2.0, 3.0, VOCAB).unsqueeze(0)
    logits[0, list(masked)] = -math.inf
    result = processor.apply(logits.clone())
    left = result > -math.inf
    assert torch.equal(result[left], logits[left])  # what stays keeps its value
    if torch.equal(result, logits):
        return None
    (token,) = left[0].nonzero().flatten().tolist()
    return int(token)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_end_marker_is_forced_when_the_budget_is_spent(temperature: float) -> None:
    reply = [4, 5, 1, 2, 3, 6, 7, 6, 8, 1]
    steps = [forced([9], reply[:n], temperature=temperature) for n in range(len(reply) + 1)]
    assert steps == [None] * 5 + [6, 7, 6, 8, None, None]


def test_the_prompt_may_have_begun_the_reasoning() -> None:
    assert forced([9, 4, 5], [1, 2]) is None
    assert forced([9, 4, 5], [1, 2, 3]) == 6
    assert forced([9, 4], [5, 1, 2, 3]) == 6


def test_reasoning_that_ended_by_itself_is_over() -> None:
    assert forced([4, 5], [1, 6, 7, 6, 8, 1, 1, 1, 1]) is None


def test_an_end_marker_that_was_begun_is_completed() -> None:
    assert forced([4, 5], [1, 2, 6]) == 7
    assert forced([4, 5], [1, 6, 7]) == 6
    assert forced([4, 5], [6, 7, 6]) == 8
    assert forced([4, 5], [6, 7, 6, 7]) == 6  # the last three tokens are a beginning as well


def test_a_second_reasoning_has_the_whole_budget() -> None:
    thought = [4, 5, 1, 2, 3, 6, 7, 6, 8]
    assert forced([9], [*thought, 4, 5, 1, 2]) is None
    assert forced([9], [*thought, 4, 5, 1, 2, 3]) == 6


def test_a_budget_of_zero_ends_at_once() -> None:
    assert forced([4, 5], [], {**ARGS, "think_budget": 0}) == 6


def test_nothing_happens_without_a_start_marker() -> None:
    assert forced([9], [1] * 20) is None
    assert forced([9, 5, 4], [1] * 20) is None


def test_a_token_that_was_masked_before_is_not_forced() -> None:
    assert forced([4, 5], [1, 2, 3], masked=(6, 9)) is None
    assert forced([4, 5], [1, 2, 3], masked=(7, 9)) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"think_budget": -1},
        {"think_budget": 2.5},
        {"think_start": []},
        {"think_end": None},
        {"think_end": [6] * 17},
        {"think_stop": [6]},
    ],
)
def test_bad_parameters_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="think_"):
        ThinkingBudget.validate_params(SamplingParams(extra_args={**ARGS, **change}))
