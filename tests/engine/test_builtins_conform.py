"""vLLM's own V1 processors before the suite: no check may fail them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session

pytestmark = pytest.mark.engine

CASES: dict[str, dict[str, Any]] = {
    "MinPLogitsProcessor": {"min_p": 0.2},
    "LogitBiasLogitsProcessor": {"logit_bias": {5: 3.0, 9: -4.0}},
    "MinTokensLogitsProcessor": {"min_tokens": 6, "stop_token_ids": [3, 4], "max_tokens": 100},
}


@pytest.mark.parametrize("name", CASES)
def test_no_check_fails_a_processor_of_vllms_own(name: str) -> None:
    builtin = importlib.import_module("vllm.v1.sample.logits_processor.builtin")
    # Another process imports vLLM for 5 s, and cannot read a case whose keys are ints.
    plan = Plan(cases=(Case.parse(CASES[name]),), ignore=("LP604",))
    found = {result.label: result for result in Session(name, getattr(builtin, name), plan).results()}
    assert not [result for result in found.values() if result.status in ("failed", "blocked", "error")]
    assert found["LP219[v1]"].status == "passed"
    if name == "MinTokensLogitsProcessor":
        assert found["LP506[v1]"].status == "advice", "its lists may shrink"
