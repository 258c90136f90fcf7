"""The catalogue of checks: what requires what, and what a plan chooses."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit_conformance.checks import catalogue
from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.catalogue import (
    all_checks,
    by_code,
    chosen,
    dependents,
    one_report_each,
    requirements_first,
)
from lpkit_conformance.results import CheckResult, Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.settings.plan import Plan


def checks_of(**requires: tuple[str, ...]) -> list[type[Check]]:
    """A check of each code."""

    def run(self: Check, subject: Any) -> None:
        return None

    return [type(code, (Check,), {"code": code, "requires": needs, "run": run}) for code, needs in requires.items()]


def test_requirements_exist_and_run_first() -> None:
    order = [check.code for check in chosen(Plan())]
    assert sorted(order) == [check.code for check in all_checks()]
    for check in all_checks():
        assert all(order.index(code) < order.index(check.code) for code in check.requires)
        assert set(check.requires) <= by_code().keys()


def test_a_requirement_runs_wherever_what_needs_it_runs() -> None:
    for check in all_checks():
        for code in check.requires:
            hosts = by_code()[code].hosts
            assert not hosts or set(check.hosts) <= set(HOSTS), (check.code, code)


def test_a_quick_run_is_of_checks_that_can_fail_a_plugin() -> None:
    quick = [check for check in all_checks(None) if check.quick]
    assert len(quick) == 18
    assert {check.tier for check in quick} == {"core"}


def test_every_check_documents_its_rule_its_reason_and_a_fix() -> None:
    for check in all_checks(None):
        sections = check.sections()
        assert all(sections[part] for part in ("title", "why", "fix")), check.code
        assert check.name == check.name.lower().replace("_", "-")


def test_what_an_ignored_check_requires_is_not_brought_by_it() -> None:
    assert [check.code for check in chosen(Plan(select=("LP206",), ignore=("LP201", "LP202", "LP205")))] == ["LP206"]


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        (
            checks_of(LP001=(), LP201=("LP001", "LP203"), LP202=("LP201",), LP203=("LP202",)),
            "checks require each other: LP201 -> LP203 -> LP202 -> LP201",
        ),
        (checks_of(LP201=("LP201",)), "LP201 -> LP201"),
        ([*checks_of(LP201=()), *checks_of(LP201=())], "LP201 is taken by LP201"),
    ],
    ids=["a circle", "a check that requires itself", "two of one code"],
)
def test_checks_without_an_order_are_refused(
    monkeypatch: pytest.MonkeyPatch, checks: list[type[Check]], said: str
) -> None:
    monkeypatch.setattr(catalogue, "_checks", lambda: checks)
    with pytest.raises(ValueError, match=said):
        by_code.__wrapped__()


def test_what_two_checks_share_comes_once_and_before_both() -> None:
    requires = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
    assert requirements_first("a", requires.__getitem__) == ["d", "b", "c", "a"]
    assert requirements_first("cb", requires.__getitem__) == ["d", "c", "b"]


def test_dependents_are_those_that_need_a_check_through_any_number_of_others() -> None:
    assert dependents("LP501") == ["LP220", "LP505", "LP506", "LP508", "LP509"]
    assert {"LP101", "LP201", "LP219", "LP506", "LP808"} <= set(dependents("LP001"))
    assert "LP001" not in dependents("LP001")


def test_a_failure_that_is_announced_explains_no_other() -> None:
    failed = [
        CheckResult(code, name, "v1", "failed", finding=Finding(name, {}, "", ""))
        for code, name in (("LP303", "apply-is-repeatable"), ("LP202", "replace-on-add"))
    ]
    assert [result.status for result in one_report_each(failed)] == ["failed", "blocked"]
    assert [result.status for result in one_report_each(failed, {"LP303"})] == ["failed", "failed"]
