"""The rule: on both of vLLM's runners, each token of a request is chosen from the same logits.

Engines of `lpkit.runtime` ask the processor as the runners do, with the cases of `[tool.lpkit]`; there is no model.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit.runtime import Engine, Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.testing import install_standin, project_cases

CASES = project_cases(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def processor() -> Any:
    if importlib.util.find_spec("vllm") is None:
        install_standin()  # what is wrapped may import vLLM's interface
    return importlib.import_module("{{ cookiecutter.package_name }}").{{ cookiecutter.class_name }}


def processed(engine: Engine, case: Any) -> dict[tuple[str, int], torch.Tensor]:
    """Logits behind each token, with preemption and chunked prefill; every third request does not use the processor."""
    scheduler = Scheduler(engine, max_num_batched_tokens=23, num_blocks=9, block_size=8)
    for n in range(9):
        prompt = [3 + (n * 7 + i) % 40 for i in range(3 + 2 * n)] + list(case.prompt_token_ids)
        params = case.params(max_tokens=12) if n % 3 else SamplingParams(max_tokens=12)
        scheduler.submit(Request(f"r{n}", params, prompt), at_step=n // 3)
    rows: dict[tuple[str, int], torch.Tensor] = {}
    while scheduler.unfinished:
        result = scheduler.step()
        if result.processed is not None:
            for row, logits in zip(result.rows, result.processed, strict=True):
                if not row.discarded:
                    rows[row.request_id, row.position] = logits.clone()
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.text))
def test_both_runners_choose_from_the_same_logits(processor: Any, case: Any) -> None:
    on_v1 = processed(V1Engine([processor], vocab_size=512, max_num_seqs=4, device="cpu"), case)
    on_v2 = processed(V2Engine([processor], vocab_size=512, max_num_seqs=4, device="cpu"), case)
    assert on_v1.keys() == on_v2.keys()
    for token, logits in on_v1.items():
        torch.testing.assert_close(on_v2[token], logits, rtol=1e-5, atol=1e-5)
