"""The rule: each output token raises the logit of `wrap_up_token` by `wrap_up_step`.

Engines of `lpkit.runtime` call the processor as vLLM's two runners do, without a model.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.runtime import Request, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams

from {{ cookiecutter.package_name }} import {{ cookiecutter.class_name }}

VOCAB = 128
PROMPT = [1, 2, 3]


@pytest.fixture(params=[V1Engine, V2Engine], ids=["v1", "v2"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param([{{ cookiecutter.class_name }}], vocab_size=VOCAB, max_num_seqs=4, device="cpu")


def change(engine: Any, extra_args: dict[str, Any], written: list[int]) -> torch.Tensor:
    """Additions to the logits of a request that has written these tokens; its neighbour does not use the processor."""
    engine.add(Request("neighbour", SamplingParams(), PROMPT))
    engine.add(Request("mine", SamplingParams(extra_args=extra_args), PROMPT))
    for token in written:
        engine.step(force={"mine": token})
    step = engine.step()
    changes: dict[str, torch.Tensor] = {
        row.request_id: step.processed[n] - step.raw[n] for n, row in enumerate(step.rows)
    }
    assert not changes["neighbour"].any()
    return changes["mine"]


def test_nothing_changes_before_the_first_output_token(engine: Any) -> None:
    assert not change(engine, {"wrap_up_token": 7}, written=[]).any()


def test_the_token_rises_by_one_step_per_output_token(engine: Any) -> None:
    expected = torch.zeros(VOCAB)
    expected[0] = 2 * 0.5  # token 0 is a token like any other
    torch.testing.assert_close(change(engine, {"wrap_up_token": 0, "wrap_up_step": 0.5}, written=[4, 5]), expected)


def test_a_request_that_does_not_ask_is_unaffected(engine: Any) -> None:
    assert not change(engine, {"other_plugins_key": 1}, written=[4, 5, 6, 4, 5]).any()


@pytest.mark.parametrize(
    "extra_args",
    [
        {"wrap_up_token": -1},
        {"wrap_up_token": "seven"},
        {"wrap_up_step": 3},
        {"wrap_up_token": 7, "wrap_up_step": 0},
        {"wrap_up_tokens": 7},
    ],
)
def test_bad_parameters_are_refused_before_the_request_starts(engine: Any, extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wrap_up_"):
        engine.add(Request("mine", SamplingParams(extra_args=extra_args), PROMPT))
