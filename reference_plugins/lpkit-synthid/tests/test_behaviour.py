"""Edits of one request's logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_synthid import SynthId

VOCAB = 16
ASKED = {"synthid_keys": [3, 1, 4], "synthid_ngram_len": 3}


def changed(extra_args: dict[str, Any], output_ids: list[int], logits: torch.Tensor | None = None) -> torch.Tensor:
    """Return flat logits, edited for a request with these parameters that has generated `output_ids`."""
    logits = torch.zeros(VOCAB) if logits is None else logits
    processor = SynthId(make_config(max_num_seqs=4, vocab_size=VOCAB), torch.device("cpu"), False)
    request = (0, SamplingParams(extra_args=extra_args), [1, 2], output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    return processor.apply(logits.clone().unsqueeze(0))[0]


def test_one_round_doubles_what_wins_against_all_and_takes_what_loses() -> None:
    shares = changed({"synthid_keys": [3]}, [5, 6, 7]).softmax(0) * VOCAB
    winners = int((shares > 1).sum())
    assert 0 < winners < VOCAB
    # A token with the bit 1 meets one with 0 in the share of those, and wins; else it meets its like.
    assert sorted({round(share, 4) for share in shares.tolist()}) == [1 - winners / VOCAB, 2 - winners / VOCAB]


def test_keys_and_context_decide() -> None:
    first = changed(ASKED, [5, 6, 7])
    assert torch.equal(changed(ASKED, [9, 6, 7]), first)
    assert not torch.equal(changed(ASKED, [5, 9, 7]), first)
    assert not torch.equal(changed({**ASKED, "synthid_keys": [3, 1, 5]}, [5, 6, 7]), first)


def test_a_context_that_comes_again_is_left_alone() -> None:
    assert not changed(ASKED, [6, 7, 6, 7]).any()
    assert changed({**ASKED, "synthid_context_history_size": 1}, [6, 7, 6, 7]).any()


def test_the_first_tokens_can_be_left_alone() -> None:
    assert changed(ASKED, [6]).any()
    assert not changed({**ASKED, "synthid_skip_first_ngram_calls": True}, [6]).any()
    assert changed({**ASKED, "synthid_skip_first_ngram_calls": True}, [6, 7]).any()


def test_a_masked_token_stays_masked() -> None:
    logits = torch.zeros(VOCAB)
    logits[::2] = -torch.inf
    assert torch.equal(changed(ASKED, [5], logits).isneginf(), logits.isneginf())


@pytest.mark.parametrize(
    "extra_args",
    [
        {"synthid_keys": []},
        {"synthid_keys": [1] * 31},
        {"synthid_keys": [0.5]},
        {"synthid_keys": [1], "synthid_ngram_len": 1},
        {"synthid_keys": [1], "synthid_ngram_len": 18},
        {"synthid_ngram_len": 5},
        {"synthid_key": 5},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="synthid_"):
        SynthId.validate_params(SamplingParams(extra_args=extra_args))
