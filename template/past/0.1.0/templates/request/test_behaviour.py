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


def test_recent_tokens_are_lowered_once_each() -> None:
    expected = torch.zeros(VOCAB)
    expected[[4, 5]] = -1.5
    torch.testing.assert_close(change({"recent_penalty": 1.5}, [4, 5, 4]), expected)


def test_tokens_before_the_window_are_forgotten() -> None:
    expected = torch.zeros(VOCAB)
    expected[[5, 6]] = -1.0
    args = {"recent_penalty": 1.0, "recent_window": 2}
    torch.testing.assert_close(change(args, [4, 5, 6]), expected)


def test_the_first_token_is_not_penalized() -> None:
    assert not change({"recent_penalty": 1.0}, []).any()


def test_a_request_that_does_not_ask_is_left_alone() -> None:
    assert not change({"other_plugins_key": 1}, [4, 5, 6]).any()


@pytest.mark.parametrize(
    "extra_args",
    [
        {"recent_penalty": 0},
        {"recent_penalty": "strong"},
        {"recent_window": 4},
        {"recent_penalty": 1.0, "recent_window": 0},
        {"recent_penality": 1.0},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="recent_"):
        {{ cookiecutter.class_name }}.validate_params(SamplingParams(extra_args=extra_args))
