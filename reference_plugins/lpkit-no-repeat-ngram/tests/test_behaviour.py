"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_no_repeat_ngram import NoRepeatNgram

VOCAB = 32


def banned(extra_args: dict[str, Any], output_ids: list[int], logits: torch.Tensor | None = None) -> list[int]:
    """The tokens masked for a request with these parameters that has generated `output_ids`."""
    if logits is None:
        logits = torch.linspace(-2.0, 3.0, VOCAB)
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = NoRepeatNgram(config, torch.device("cpu"), False)
    request = (0, SamplingParams(extra_args=extra_args), [1, 2, 3, 1, 2, 3], output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result = processor.apply(logits.clone().unsqueeze(0))[0]
    changed = result != logits
    assert (result[changed] == -math.inf).all()
    return [token for token, masked in enumerate(changed.tolist()) if masked]


def test_the_token_behind_the_same_beginning_is_banned() -> None:
    assert banned({"no_repeat_ngram_size": 3}, [4, 5, 6, 4, 5]) == [6]


def test_every_earlier_continuation_is_banned() -> None:
    assert banned({"no_repeat_ngram_size": 2}, [4, 5, 4, 6, 4, 0, 4]) == [0, 5, 6]


def test_overlapping_ngrams_count() -> None:
    assert banned({"no_repeat_ngram_size": 3}, [4, 4, 4]) == [4]


def test_with_size_one_no_token_comes_twice() -> None:
    assert banned({"no_repeat_ngram_size": 1}, [4, 0, 4]) == [0, 4]


@pytest.mark.parametrize("output_ids", [[], [4], [4, 5]])
def test_too_short_an_output_repeats_nothing(output_ids: list[int]) -> None:
    assert banned({"no_repeat_ngram_size": 3}, output_ids) == []


def test_the_prompt_may_be_quoted() -> None:
    assert banned({"no_repeat_ngram_size": 3}, [1, 2]) == []


def test_what_lies_before_the_window_is_forgotten() -> None:
    output = [4, 5, 6, 4, 5]
    assert banned({"no_repeat_ngram_size": 3, "no_repeat_ngram_window": 5}, output) == [6]
    assert banned({"no_repeat_ngram_size": 3, "no_repeat_ngram_window": 4}, output) == []


def test_the_last_token_left_may_be_repeated() -> None:
    logits = torch.full((VOCAB,), -math.inf)
    logits[4] = 1.0
    assert banned({"no_repeat_ngram_size": 1}, [4], logits) == []
    logits[5] = 1.0
    assert banned({"no_repeat_ngram_size": 1}, [4], logits) == [4]


@pytest.mark.parametrize(
    "extra_args",
    [
        {"no_repeat_ngram_size": 0},
        {"no_repeat_ngram_size": 2.5},
        {"no_repeat_ngram_size": True},
        {"no_repeat_ngram_window": 4},
        {"no_repeat_ngram_size": 2, "no_repeat_ngram_window": -1},
        {"no_repeat_ngram_sizes": 2},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no_repeat_ngram_"):
        NoRepeatNgram.validate_params(SamplingParams(extra_args=extra_args))
