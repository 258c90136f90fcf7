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
