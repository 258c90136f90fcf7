"""Recorded traces on a real engine: with asynchronous scheduling and with drafts, where they have them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from lpkit_conformance import traces
from lpkit_conformance.engine.checking import check_target
from lpkit_conformance.results import CheckResult, TargetResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.vllm_api.releases import Release, is_before
from unusual_engines import needs_v2_drafts

pytestmark = pytest.mark.engine

PROBES = str(Path(__file__).parent / "probes")
CASE = '{"extra_args": {"favours": 7}}'
BIAS = str(Path(__file__).parents[2] / "reference_plugins" / "lpkit-logit-bias" / "src")


@cache
def play(trace: str, target: str = "trace_probes:ToldOfDrafts", case: str = CASE, path: str = PROBES) -> TargetResult:
    plan = Plan((Case.parse(case),), hosts=(traces.load(trace).runner,), trace=(trace, "alternating"))
    return check_target(target, plan, [path])


def check(found: TargetResult, code: str) -> CheckResult:
    (result,) = [item for item in found.checks if item.code == code]
    return result


@needs_v2_drafts
@pytest.mark.parametrize("trace", ["v2_drafts", "v2_async"])
def test_every_batch_of_a_trace_with_drafts_is_met_and_judged(trace: str) -> None:
    """By a class that acts differently with drafts, which the reference runtime configures as the engine does."""
    found = play(trace)
    assert [item.status for item in found.checks] == ["passed"] * 4 + ["skipped"] * 2, found
    batches = sum(bool(step.applies) for step in traces.load(trace).v2_steps)
    rows, events = found.notes
    assert f"{batches} of the trace's {batches} batches have the same requests in the same rows" in rows
    assert f"{batches} by the same arrivals in the same slots" in rows
    drafts = sum(any(any(call.local) for call in step.applies) for step in traces.load(trace).v2_steps)
    assert events.endswith(f"drafts {drafts} of {drafts}")
    assert "of 7 requests; 7 of them followed a given text" in check(found, "LP902").message


def test_every_batch_of_an_asynchronous_trace_is_met_and_judged_on_v1() -> None:
    case = '{"extra_args": {"logit_bias_ids": [3, 90], "logit_bias_values": [5.0, -2.0]}}'
    found = play("v1_async", "lpkit_logit_bias:LogitBias", case, BIAS)
    assert [item.status for item in found.checks] == ["passed"] * 4 + ["skipped"], found
    rows, events = found.notes
    batches = sum(step.applied for step in traces.load("v1_async").v1_steps)
    assert f"{batches} of the trace's {batches} batches" in rows and f"{batches} by the same batch updates" in rows
    assert events.endswith("placeholders 28 of 28")


@needs_v2_drafts
def test_a_plugin_with_one_row_per_request_fails_on_drafts() -> None:
    found = play("v2_drafts", "trace_probes:OneRowEach")
    assert check(found, "LP902").status == "failed"


@needs_v2_drafts
def test_a_plugin_that_refuses_drafts_is_played_without_them_and_not_blamed() -> None:
    found = play("v2_drafts", "trace_probes:RefusesDrafts")
    assert [item.status for item in found.checks] == ["passed"] * 4 + ["skipped"] * 2, found
    assert found.notes[0].startswith("the engine runs without drafts: the plugin refuses them (ValueError: no drafts")


@pytest.mark.needs_release("0.31")
def test_where_v2_cannot_draft_a_trace_is_played_without_drafts_and_says_so(release: Release | None) -> None:
    found = play("v2_drafts")
    assert [item.status for item in found.checks] == ["passed"] * 4 + ["skipped"] * 2, found
    assert ("runs without drafts: vLLM" in found.notes[0]) is is_before(release, (0, 32, 0))
