"""Checks judged by a second child: what passes there is believed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.processes import tree
from lpkit_conformance.results import TargetResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite import helper, supervisor
from lpkit_conformance.suite.helper import Helper, divisible
from lpkit_conformance.suite.supervisor import check_target
from zoo.lp201.portable import IndexForSlots

PLAN = Plan(cases=(Case.parse(IndexForSlots.CASE),), select=("LP403",))


@pytest.mark.parametrize(
    ("labels", "believed"),
    [
        (["passed", "skipped"], [True, True]),
        (["failed", "advice", "error", "blocked", "passed"], [False, False, False, False, True]),
        (["skipped never-active", "passed"], [False, True]),
        (["passed", "exit", "skipped"], [True, False, False]),
        (["passed", "hang", "skipped"], [True, False, False]),
    ],
)
def test_only_what_passes_there_is_believed(
    labels: list[str], believed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(helper, "CHILD", "judging:work")
    before = set(tree.children())
    with Helper({"plan": {}, "lost": ""}, 1.0) as other:
        assert other.passed("passed") is None  # nothing was given to it
        other.begin(labels, {}, None)
        results = [other.passed(label) for label in labels]
    assert [result is not None for result in results] == believed
    assert all(result.message != str(os.getpid()) for result in results if result)
    assert set(tree.children()) == before


@pytest.mark.broad
def test_a_run_in_two_children_says_what_a_run_in_one_child_says(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    begin = Helper.begin

    def begun(self: Helper, labels: list[str], *rest: Any) -> None:
        given.extend(labels)
        begin(self, labels, *rest)

    def run(two: bool) -> TargetResult:
        monkeypatch.setattr(supervisor, "divisible", lambda plan: two)
        return check_target("zoo.lp201.portable:IndexForSlots", PLAN, [])

    monkeypatch.setattr(Helper, "begin", begun)
    one, two = run(False), run(True)
    said = [[(check.label, check.status, check.message) for check in result.checks] for result in (one, two)]
    assert said[0] == said[1]
    failed = [check.label for check in two.checks if check.status == "failed"]
    assert failed == ["LP201[v1]", "LP201[v2]"]
    assert given and all(label.endswith("[v2]") for label in given)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(), True),
        (Plan(ignore=("LP7",), hosts=("v1", "v2")), True),
        (Plan(select=("LP2",)), False),
    ],
)
def test_a_second_child_is_started_for_long_runs_on_several_cores(
    plan: Plan, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert divisible(plan) is expected
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert not divisible(plan)
