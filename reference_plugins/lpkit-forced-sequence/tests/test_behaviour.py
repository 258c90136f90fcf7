"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_forced_sequence import ForcedSequence

VOCAB = 16


def kept(
    extra_args: dict[str, Any], output_ids: list[int], masked: tuple[int, ...] = (), temperature: float = 1.0
) -> list[int]:
    """The tokens left to a request with these parameters that has generated `output_ids`."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = ForcedSequence(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    logits = torch.linspace(-2.0, 3.0, VOCAB).unsqueeze(0)
    logits[0, list(masked)] = -math.inf
    result = processor.apply(logits.clone())
    left = result > -math.inf
    assert torch.equal(result[left], logits[left])  # what stays keeps its value
    return [token for token, stays in enumerate(left[0].tolist()) if stays]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_tokens_come_in_order_then_the_model_is_free(temperature: float) -> None:
    args = {"forced_sequence": [5, 0, 5]}
    left = [kept(args, [9] * n, temperature=temperature) for n in range(5)]
    assert left == [[5], [0], [5], list(range(VOCAB)), list(range(VOCAB))]


def test_the_end_token_is_forced_from_then_on() -> None:
    args = {"forced_sequence": [5, 6], "forced_sequence_end": 0}
    assert [kept(args, [9] * n) for n in range(5)] == [[5], [6], [0], [0], [0]]


def test_a_dynamo_entry_says_the_same() -> None:
    args = {"dynamo_logits": [{"kind": "forced_sequence", "token_ids": [5, 6], "eos_token_id": 0}]}
    assert [kept(args, [9] * n) for n in range(5)] == [[5], [6], [0], [0], [0]]
    args["dynamo_logits"][0]["token_ids"] = []
    assert kept(args, []) == [0]


def test_a_dynamo_entry_outside_the_vocabulary_declines_the_request() -> None:
    args = {"dynamo_logits": [{"kind": "forced_sequence", "token_ids": [5], "eos_token_id": VOCAB}]}
    assert kept(args, []) == list(range(VOCAB))


def test_a_token_that_was_masked_before_is_not_forced() -> None:
    args = {"forced_sequence": [5, 6], "forced_sequence_end": 0}
    assert kept(args, [], masked=(5, 7)) == [token for token in range(VOCAB) if token not in (5, 7)]
    assert kept(args, [5], masked=(5, 7)) == [6]


def test_placeholders_in_the_output_do_no_harm() -> None:
    assert kept({"forced_sequence": [5, 6, 7]}, [5, -1]) == [7]


@pytest.mark.parametrize(
    "extra_args",
    [
        {"forced_sequence": 5.0},
        {"forced_sequence": 5},
        {"forced_sequence": [-1]},
        {"forced_sequence": [5] * 1025},
        {"forced_sequence_end": 2},
        {"forced_sequence": [5], "forced_sequence_eos": 2},
        {"forced_sequence": [5], "dynamo_logits": [{"kind": "forced_sequence", "token_ids": [5], "eos_token_id": 2}]},
        {"dynamo_logits": [{"kind": "python", "token_ids": [5], "eos_token_id": 2}]},
        {"dynamo_logits": [{"kind": "forced_sequence", "token_ids": [5]}]},
        {"dynamo_logits": [{"kind": "forced_sequence", "token_ids": [5], "eos_token_id": 2}] * 2},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"forced_sequence|dynamo_logits"):
        ForcedSequence.validate_params(SamplingParams(extra_args=extra_args))
