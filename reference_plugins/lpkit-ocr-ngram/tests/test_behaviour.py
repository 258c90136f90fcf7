"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_ocr_ngram import OcrNgram

VOCAB = 32


def banned(extra_args: dict[str, Any], output_ids: list[int], logits: torch.Tensor | None = None) -> list[int]:
    """The tokens masked for a request with these parameters that has generated `output_ids`."""
    if logits is None:
        logits = torch.linspace(-2.0, 3.0, VOCAB)
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = OcrNgram(config, torch.device("cpu"), False)
    request = (0, SamplingParams(extra_args=extra_args), [1, 2, 3, 1, 2, 3], output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result = processor.apply(logits.clone().unsqueeze(0))[0]
    changed = result != logits
    assert (result[changed] == -math.inf).all()
    return [token for token, masked in enumerate(changed.tolist()) if masked]


def test_what_followed_the_same_beginning_is_banned() -> None:
    assert banned({"ngram_size": 2}, [4, 5, 4, 6, 4, 0, 4]) == [0, 5, 6]


def test_a_whitelisted_token_may_come_again() -> None:
    assert banned({"ngram_size": 2, "whitelist_token_ids": [5, 0]}, [4, 5, 4, 6, 4, 0, 4]) == [6]


def test_an_ngram_that_begins_before_the_window_is_forgotten() -> None:
    assert banned({"ngram_size": 3, "window_size": 5}, [4, 5, 6, 4, 5]) == [6]
    assert banned({"ngram_size": 3, "window_size": 4}, [4, 5, 6, 4, 5]) == []


def test_the_window_has_100_tokens_by_default() -> None:
    assert banned({"ngram_size": 2}, [4, 5, *range(6, 30), *[30] * 73, 4]) == [5]
    assert banned({"ngram_size": 2}, [4, 5, *range(6, 30), *[30] * 74, 4]) == []


def test_the_prompt_may_be_quoted() -> None:
    assert banned({"ngram_size": 3}, [1, 2]) == []


def test_size_one_bans_nothing() -> None:
    assert banned({"ngram_size": 1}, [4, 4, 4]) == []


def test_the_last_token_left_may_be_repeated() -> None:
    logits = torch.full((VOCAB,), -math.inf)
    logits[4] = 1.0
    assert banned({"ngram_size": 2}, [4, 4], logits) == []


@pytest.mark.parametrize(
    "extra_args",
    [
        {"ngram_size": 0},
        {"ngram_size": 2.5},
        {"ngram_size": 2, "window_size": 0},
        {"ngram_size": 2, "whitelist_token_ids": "4"},
        {"ngram_size": 2, "whitelist_token_ids": [-1]},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"_size|whitelist"):
        OcrNgram.validate_params(SamplingParams(extra_args=extra_args))
