"""Edits of one request's logits, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_truncation import Truncation

SHARES = [0.1, 0.5, 0.03, 0.3, 0.05, 0.02]  # an entropy of 1.287: next to -ln 0.3 (1.204), then to -ln 0.5 (0.693)


def kept(extra_args: dict[str, Any], logits: torch.Tensor | None = None, temperature: float = 1.0) -> list[int]:
    """The tokens left of `SHARES` for a request with these parameters."""
    logits = torch.tensor(SHARES).log() if logits is None else logits
    processor = Truncation(make_config(max_num_seqs=4, vocab_size=len(logits)), torch.device("cpu"), False)
    request = (0, SamplingParams(temperature=temperature, extra_args=extra_args), [1, 2, 3], [])
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    result = processor.apply(logits.clone().unsqueeze(0))[0]
    left = result > -math.inf
    assert torch.equal(result[left], logits[left])
    return [token for token, is_left in enumerate(left.tolist()) if is_left]


def by(rule: str, threshold: float) -> list[int]:
    return kept({"truncation_rule": rule, "truncation_threshold": threshold})


def test_epsilon_keeps_what_is_likely_enough() -> None:
    assert by("epsilon", 0.04) == [0, 1, 3, 4]
    assert by("epsilon", 0.9) == [1]


def test_eta_is_lower_where_the_entropy_is_high() -> None:
    assert by("eta", 0.04) == [0, 1, 3, 4]  # sqrt(0.04) * exp(-1.287) = 0.055 is above 0.04
    assert by("eta", 0.09) == [0, 1, 3]  # 0.3 * 0.276 = 0.083
    assert by("eta", 0.9) == [1, 3]  # 0.95 * 0.276 = 0.262


def test_top_a_measures_by_the_square_of_the_top() -> None:
    assert by("top_a", 0.2) == [0, 1, 3, 4]  # 0.2 * 0.25 = 0.05
    assert by("top_a", 0.5) == [1, 3]


def test_typical_starts_next_to_the_entropy() -> None:
    assert by("typical", 0.2) == [3]
    assert by("typical", 0.7) == [1, 3]
    assert by("typical", 0.85) == [0, 1, 3]


def test_tail_free_ends_where_the_curve_has_flattened() -> None:
    # Sorted .5 .3 .1 .05 .03 .02; second differences 0, .15, .03, .01; their sum reaches .79 at the second.
    assert by("tail_free", 0.5) == [1, 3]
    assert by("tail_free", 0.8) == [0, 1, 3]
    assert by("tail_free", 0.96) == [0, 1, 3, 4]


@pytest.mark.parametrize("rule", ["epsilon", "eta", "top_a", "typical", "tail_free"])
def test_a_masked_row_and_a_row_with_one_token_stay(rule: str) -> None:
    args = {"truncation_rule": rule, "truncation_threshold": 0.5}
    assert kept(args, torch.full((4,), -math.inf)) == []
    assert kept(args, torch.tensor([-math.inf, -3.0, -math.inf, -math.inf])) == [1]


@pytest.mark.parametrize("rule", ["typical", "tail_free"])
def test_a_whole_keeps_everything(rule: str) -> None:
    assert by(rule, 1.0) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "extra_args",
    [
        {"truncation_rule": "epsilon"},
        {"truncation_threshold": 0.1},
        {"truncation_rule": "top_p", "truncation_threshold": 0.1},
        {"truncation_rule": "eta", "truncation_threshold": 0.0},
        {"truncation_rule": "typical", "truncation_threshold": 1.5},
        {"truncation_rules": "eta", "truncation_threshold": 0.1},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="truncation_"):
        Truncation.validate_params(SamplingParams(extra_args=extra_args))
