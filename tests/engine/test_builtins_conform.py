"""vLLM's own V1 processors before the suite: no check may fail them, under any seed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session

pytestmark = pytest.mark.engine

CASES: dict[str, dict[str, Any]] = {
    "MinPLogitsProcessor": {"min_p": 0.2},
    "LogitBiasLogitsProcessor": {"logit_bias": {5: 3.0, 9: -4.0}},
    "MinTokensLogitsProcessor": {"min_tokens": 6, "stop_token_ids": [3, 4], "max_tokens": 100},
}


def results(name: str, seed: int) -> dict[str, CheckResult]:
    builtin = importlib.import_module("vllm.v1.sample.logits_processor.builtin")
    # Another process imports vLLM for 5 s, and cannot read a case whose keys are ints.
    plan = Plan(cases=(Case.parse(CASES[name]),), seed=seed, ignore=("LP604",))
    return {result.label: result for result in Session(name, getattr(builtin, name), plan).results()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_no_check_fails_a_processor_of_vllms_own(name: str, seed: int) -> None:
    found = results(name, seed)
    blamed = [result for result in found.values() if result.status in ("failed", "blocked", "error")]
    assert not blamed
    assert found["LP219[v1]"].status == "passed"


def test_min_tokens_is_advised_that_lists_may_shrink() -> None:
    assert results("MinTokensLogitsProcessor", 0)["LP506[v1]"].status == "advice"
