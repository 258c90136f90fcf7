"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_cite_from_prompt import CiteFromPrompt

VOCAB = 12
PROMPT = [5, 6, 5, 7, 0]


def boosts(
    extra_args: dict[str, Any],
    output_ids: list[int],
    prompt_ids: list[int] | None = PROMPT,
    temperature: float = 1.0,
) -> dict[int, float]:
    """Return the additions to the logits of a request with these parameters and tokens, by token."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = CiteFromPrompt(config, torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), prompt_ids, output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    added = processor.apply(torch.zeros(1, VOCAB))[0]
    return {token: value for token, value in enumerate(added.tolist()) if value}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_tokens_of_the_prompt_are_boosted_once_each(temperature: float) -> None:
    assert boosts({"cite_boost": 2}, [8, 9], temperature=temperature) == {0: 2.0, 5: 2.0, 6: 2.0, 7: 2.0}


def test_tokens_of_the_output_are_not_cited() -> None:
    assert boosts({"cite_boost": 2}, [8, 9]).keys() == boosts({"cite_boost": 2}, []).keys()


def test_what_follows_the_last_token_in_the_prompt_is_boosted_further() -> None:
    args = {"cite_boost": 1, "cite_next_boost": 4}
    assert boosts(args, [5]) == {0: 1.0, 5: 1.0, 6: 5.0, 7: 5.0}
    assert boosts(args, [5, 7]) == {0: 5.0, 5: 1.0, 6: 1.0, 7: 1.0}
    assert boosts(args, [5, 8]) == {0: 1.0, 5: 1.0, 6: 1.0, 7: 1.0}


def test_the_end_of_the_prompt_is_followed_by_nothing() -> None:
    args = {"cite_boost": 1, "cite_next_boost": 4}
    assert boosts(args, []) == boosts(args, [9, 0]) == {0: 1.0, 5: 1.0, 6: 1.0, 7: 1.0}


def test_further_tokens_count_as_cited() -> None:
    assert boosts({"cite_boost": 1, "cite_also": [2, 7]}, []) == {0: 1.0, 2: 1.0, 5: 1.0, 6: 1.0, 7: 1.0}


def test_masked_tokens_stay_masked() -> None:
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = CiteFromPrompt(config, torch.device("cpu"), False)
    args = {"cite_boost": 3, "cite_next_boost": 3}
    processor.update_state(BatchUpdate(1, [], [(0, SamplingParams(extra_args=args), PROMPT, [5])], []))
    logits = torch.full((1, VOCAB), -math.inf)
    logits[0, 7] = 1.0
    assert processor.apply(logits)[0].tolist() == [-math.inf] * 7 + [7.0] + [-math.inf] * 4


def test_a_prompt_without_token_ids_is_not_cited() -> None:
    assert boosts({"cite_boost": 2, "cite_next_boost": 2}, [5], prompt_ids=None) == {}


@pytest.mark.parametrize(
    "extra_args",
    [
        {"cite_boost": 101},
        {"cite_boost": "much"},
        {"cite_boost": 1, "cite_also": [-1]},
        {"cite_next_boost": 1},
        {"cite_boost": 1, "cite_boost_eos": True},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cite_"):
        CiteFromPrompt.validate_params(SamplingParams(extra_args=extra_args))
