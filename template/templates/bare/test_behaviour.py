"""The rule, as requests see it: write here what each parameter does to the logits.

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


@pytest.mark.xfail(reason="write the rule in processor.py, say here what it changes, and remove this line")
def test_the_rule(engine: Any) -> None:
    assert change(engine, {"{{ cookiecutter.package_name }}_strength": 1.0}, written=[4, 5, 6]).any()


def test_a_request_that_does_not_ask_is_unaffected(engine: Any) -> None:
    assert not change(engine, {"other_plugins_key": 1}, written=[4, 5, 6]).any()


@pytest.mark.parametrize("value", [0, "strong"])
def test_bad_parameters_are_refused_before_the_request_starts(engine: Any, value: Any) -> None:
    params = SamplingParams(extra_args={"{{ cookiecutter.package_name }}_strength": value})
    with pytest.raises(ValueError, match="{{ cookiecutter.package_name }}_strength"):
        engine.add(Request("mine", params, PROMPT))
