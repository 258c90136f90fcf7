"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_allowed_tokens import AllowedTokens

VOCAB = 20


def kept(extra_args: dict[str, Any], masked: tuple[int, ...] = (), temperature: float = 1.0) -> list[int]:
    """The tokens left to a request with these parameters, if others were masked before."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = AllowedTokens(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [4])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    logits = torch.linspace(-2.0, 3.0, VOCAB).unsqueeze(0)
    logits[0, list(masked)] = -math.inf
    result = processor.apply(logits.clone())
    left = result > -math.inf
    assert torch.equal(result[left], logits[left])  # what stays keeps its value
    return [token for token, stays in enumerate(left[0].tolist()) if stays]


@pytest.mark.parametrize("ids", [[0], [7, 8], [VOCAB - 1, 3, 3], list(range(VOCAB))])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_tokens_of_the_list_stay(ids: list[int], temperature: float) -> None:
    assert kept({"allowed_tokens": ids}, temperature=temperature) == sorted(set(ids))


def test_tokens_that_were_masked_before_stay_masked() -> None:
    assert kept({"allowed_tokens": [3, 4, 5]}, masked=(4, 10)) == [3, 5]


def test_a_row_of_which_nothing_would_be_left_stays_as_it_is() -> None:
    assert kept({"allowed_tokens": [3, 4]}, masked=tuple(range(5))) == list(range(5, VOCAB))


def test_a_token_outside_the_vocabulary_declines_the_request() -> None:
    assert kept({"allowed_tokens": [3, VOCAB]}) == list(range(VOCAB))


@pytest.mark.parametrize(
    "extra_args",
    [{"allowed_tokens": []}, {"allowed_tokens": 3}, {"allowed_tokens": [-1]}, {"allowed_token_ids": [3]}],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed_token"):
        AllowedTokens.validate_params(SamplingParams(extra_args=extra_args))
