"""What the processor does to the logits of one request, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate

from {{ cookiecutter.package_name }} import {{ cookiecutter.class_name }}

VOCAB = 32


def change(extra_args: dict[str, Any], output_ids: list[int]) -> torch.Tensor:
    """What is added to the logits of a request with these parameters that has generated `output_ids`."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = {{ cookiecutter.class_name }}(config, torch.device("cpu"), False)
    request = (0, SamplingParams(extra_args=extra_args), [1, 2, 3], output_ids)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[request], moved=[]))
    return processor.apply(torch.zeros(1, VOCAB))[0]


def test_nothing_happens_up_to_the_limit() -> None:
    assert not change({"wrap_up_token": 7, "wrap_up_after": 3}, [4, 5, 6]).any()


def test_the_token_rises_by_one_step_per_token_past_the_limit() -> None:
    expected = torch.zeros(VOCAB)
    expected[7] = 2 * 0.5
    args = {"wrap_up_token": 7, "wrap_up_after": 3, "wrap_up_step": 0.5}
    torch.testing.assert_close(change(args, [4, 5, 6, 4, 5]), expected)


def test_token_zero_is_a_token_like_any_other() -> None:
    assert change({"wrap_up_token": 0}, [4, 5])[0] == 2.0


def test_a_request_that_does_not_ask_is_left_alone() -> None:
    assert not change({"other_plugins_key": 1}, [4, 5, 6, 4, 5]).any()


@pytest.mark.parametrize(
    "extra_args",
    [
        {"wrap_up_token": -1},
        {"wrap_up_token": "seven"},
        {"wrap_up_after": 3},
        {"wrap_up_token": 7, "wrap_up_step": 0},
        {"wrap_up_tokens": 7},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wrap_up_"):
        {{ cookiecutter.class_name }}.validate_params(SamplingParams(extra_args=extra_args))
