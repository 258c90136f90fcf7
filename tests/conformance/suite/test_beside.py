"""Checks judged in a fork: what passes there is believed, and nothing else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from lpkit_conformance.processes import tree
from lpkit_conformance.results import CheckResult, Status
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite import beside
from lpkit_conformance.suite.beside import Beside
from lpkit_conformance.suite.in_process import Session
from zoo.correct.portable import PortableBan

Judge = Callable[[str], CheckResult]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def outcome(status: Status, never_active: bool = False) -> CheckResult:
    return CheckResult("LP201", "alone-or-in-a-batch", "v2", status, f"in {os.getpid()}", never_active=never_active)


def test_what_passes_beside_is_believed_and_was_judged_in_another_process() -> None:
    with Beside(["a", "b"], lambda _: outcome("passed")) as other:
        found = [other.passed("b"), other.passed("a")]
        assert [result and result.message for result in found] == [f"in {other.pid}"] * 2
    assert found[0] and found[0].status == "passed"


def test_a_check_that_was_not_given_to_the_other_process_is_judged_here() -> None:
    with Beside(["a"], lambda _: outcome("passed")) as other:
        assert other.passed("b") is None


@pytest.mark.parametrize("status", ["failed", "advice", "error", "blocked"])
def test_what_does_not_pass_beside_is_judged_again(status: Status) -> None:
    with Beside(["a", "b"], lambda label: outcome(status if label == "a" else "skipped")) as other:
        assert other.passed("a") is None
        assert other.passed("b") is not None


def test_a_plugin_that_was_never_active_beside_is_looked_at_here() -> None:
    with Beside(["a"], lambda _: outcome("skipped", never_active=True)) as other:
        assert other.passed("a") is None


@pytest.mark.parametrize("leave", [lambda: os._exit(3), lambda: sys.exit(3), lambda: os.kill(os.getpid(), 9)])
def test_a_plugin_that_ends_the_other_process_is_judged_here(leave: Callable[[], None]) -> None:
    def judge(label: str) -> CheckResult:
        if label == "b":
            leave()
        return outcome("passed")

    with Beside(["a", "b", "c"], judge) as other:
        assert other.passed("a") is not None
        assert other.passed("b") is None
        assert other.passed("c") is None


def test_a_hang_beside_costs_no_more_than_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PATIENCE_SECONDS", 0.2)

    def judge(label: str) -> CheckResult:
        time.sleep(600)
        return outcome("passed")

    with Beside(["a"], judge) as other:
        pid = other.pid
        assert other.passed("a") is None
    assert pid not in tree.children()


def test_leaving_ends_the_other_process() -> None:
    with Beside(["a"], lambda _: time.sleep(600) or outcome("passed")) as other:
        pid = other.pid
        assert pid in tree.children()
    assert pid not in tree.children()


def test_other_hosts_are_judged_beside_and_the_results_are_those_of_one_process(ends: ExitStack) -> None:
    plan = Plan(
        cases=(Case.parse({"extra_args": {"ban_ids": [5, 8, 13]}}),), select=("LP1", "LP201", "LP30"), ignore=("LP604",)
    )
    given: list[str] = []
    in_this: list[str] = []

    def start(labels: list[str], judge: Judge) -> Beside:
        given.extend(labels)
        return ends.enter_context(Beside(labels, judge))

    def compared(results: list[CheckResult]) -> list[tuple[str, str, str]]:
        return [(result.label, result.status, result.message) for result in results]

    alone = compared(list(Session("x", PortableBan, plan).results()))
    session = Session("x", PortableBan, plan, beside=start)
    compute = session.compute
    session.compute = lambda check, host: (in_this.append(host), compute(check, host))[1]  # type: ignore[method-assign]
    assert compared(list(session.results())) == alone
    assert given and all(label.endswith("[v2]") for label in given)
    assert in_this.count("v2") == 1, "LP101, after which the process is forked"
