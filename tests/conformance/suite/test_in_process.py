"""The selection and order of checks, and the results of checks that cannot run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit_conformance.checks.catalogue import by_code, inactive
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.processes import pulse
from lpkit_conformance.results import BAD, CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import RUNNER_HOSTS
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import compute_check
from zoo.correct.portable import PortableTokenBias
from zoo.correct.v1 import Bias, ByHand
from zoo.correct.v2 import V2Loop, V2Presence
from zoo.lp001 import Duck
from zoo.lp105 import WritesProgress
from zoo.lp108 import ClassState
from zoo.lp109 import LooksEveryRowUp
from zoo.lp201.portable import IndexForSlots
from zoo.lp202 import KeepsTheSlot, StaleOnDecline
from zoo.lp301 import Promotes
from zoo.lp303 import AddsUp
from zoo.lp507 import PopsRemoved
from zoo.lp601 import Unseeded

CASE = Case.parse(Bias.CASE)


def results(cls: Any, **plan: Any) -> dict[str, CheckResult]:
    session = Session("x", cls, Plan(**{"cases": (CASE,), **plan}))
    return {result.label: result for result in session.results()}


def test_only_hosts_of_implemented_interfaces_are_judged() -> None:
    def hosts(cls: Any, **plan: Any) -> set[str]:
        return {host for _, host in Session("x", cls, Plan(**plan)).items}

    assert hosts(Bias) == {"", "v1"}
    assert hosts(V2Loop) == {"", "v2"}
    assert hosts(PortableTokenBias) == {"", "v1", "v2"}
    assert hosts(PortableTokenBias, hosts=("v2",)) == {"", "v2"}


def test_a_default_run_judges_every_check_on_every_runner_of_its_rule() -> None:
    assert set(Session("x", PortableTokenBias, Plan()).items) == {
        (check, host)
        for check in by_code("reference").values()
        for host in [name for name in RUNNER_HOSTS if name in check.hosts] or [""][: not check.hosts]
    }


def test_ignored_checks_do_not_run_and_block_nothing() -> None:
    found = results(Bias, select=("LP205",), ignore=("LP201",))
    assert "LP201[v1]" not in found and not inactive(found.values())
    assert found["LP205[v1]"].status == "passed"


def test_what_compares_two_calls_has_no_verdict_if_each_call_differs() -> None:
    found = results(AddsUp, cases=(Case.parse(AddsUp.CASE),), select=("LP304", "LP310"), ignore=("LP303",))
    assert {found[f"{code}[{host}]"].status for code in ("LP304", "LP310") for host in ("v1", "v2")} == {"skipped"}
    assert "LP303" in found["LP304[v1]"].message


class FailsOnSwaps(ByHand):
    """Every check that swaps rows meets the same line."""

    def swap(self, first: int, second: int) -> None:
        raise RuntimeError("not yet")


class DrawsAndKeeps(StaleOnDecline):
    """Draws without a seed, and keeps the entries of rows that are given to others."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noise = int.from_bytes(os.urandom(2), "big") / 2**16

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias + self.noise
        return logits


class CountsAndKeeps(StaleOnDecline):
    """Counts its calls, and keeps the entries of rows that are given to others."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, *counted) in self.rows.items():
            self.rows[row] = (where, bias, count := sum(counted) + 1)
            logits[row, where] += bias * count
        return logits


@pytest.mark.parametrize(
    ("cls", "plan", "failed", "blocked"),
    [
        # The row of a request without the plugin has no part in what is random, or advanced by calls.
        (
            DrawsAndKeeps,
            {"select": ("LP202", "LP203"), "ignore": ("LP604",)},
            ["LP601[v1]", "LP202[v1]"],
            {"LP201[v1]": "needs LP601"},
        ),
        (CountsAndKeeps, {"select": ("LP202", "LP303")}, ["LP202[v1]", "LP303[v1]"], {}),
        (Promotes, {"select": ("LP2",)}, ["LP301[v1]"], {"LP219[v1]": "needs LP301"}),
        # An exception is its own check's, and the exception of one line is one failure, whatever checks meet it.
        (LooksEveryRowUp, {"select": ("LP20",)}, ["LP109[v1]"], {}),
        (
            FailsOnSwaps,
            {"select": ("LP206", "LP219"), "ignore": ("LP205",)},
            ["LP206[v1]"],
            {"LP219[v1]": "needs LP206"},
        ),
        # What is random, advanced by calls or shared is not blamed on neighbours.
        (Unseeded, {"select": ("LP201", "LP601")}, ["LP601[v1]", "LP601[v2]"], {}),
        (AddsUp, {"select": ("LP201", "LP303")}, ["LP303[v1]", "LP303[v2]"], {}),
        (WritesProgress, {"select": ("LP201", "LP105")}, ["LP105[v1]", "LP105[v2]"], {}),
        (ClassState, {"select": ("LP201", "LP601")}, ["LP108[v1]"], {}),
        # Only requests that are right on each runner are compared between them.
        (IndexForSlots, {"select": ("LP403",)}, ["LP201[v1]", "LP201[v2]"], {}),
    ],
)
def test_one_root_cause_is_one_failure_and_the_rest_is_blocked_by_name(
    cls: Any, plan: dict[str, Any], failed: list[str], blocked: dict[str, str]
) -> None:
    found = results(cls, cases=(Case.parse(cls.CASE),), **plan)
    assert [label for label, result in found.items() if result.status == "failed"] == failed
    assert {label: found[label].message for label in blocked} == blocked


def test_an_exception_is_reported_with_the_operations_that_lead_to_it() -> None:
    result = results(LooksEveryRowUp, select=("LP301",))["LP109[v1]"]
    assert result.finding is not None and result.finding.scenario is not None
    assert result.finding.exception == "KeyError"
    assert result.finding.operations


def test_what_fails_for_empty_arguments_is_reported_once_and_the_rest_is_judged_without_them() -> None:
    class NeedsAnEntry(Bias):
        @classmethod
        def read(cls, params: Any) -> Any:
            if params.extra_args is not None:
                next(iter(params.extra_args))
            return super().read(params)

        @classmethod
        def validate_params(cls, params: Any) -> None:
            pass

    found = results(NeedsAnEntry, select=("LP102", "LP202"))
    assert [label for label, result in found.items() if result.status == "failed"] == ["LP102"]
    finding = found["LP102"].finding
    assert finding is not None
    assert finding.where["extra_args"] == "{}"
    assert finding.exception == "StopIteration"
    assert found["LP202[v1]"].status == "passed"


def test_what_a_check_finds_from_within_a_call_of_the_plugin_is_not_an_exception_of_the_plugin() -> None:
    finding = compute_check("LP507", PopsRemoved, case=PopsRemoved.CASE).finding
    assert finding is not None and not finding.exception
    assert finding.summary.startswith("update_state changed BatchUpdate.removed")


def test_what_is_no_processor_blocks_everything_that_needs_one() -> None:
    found = results(Duck)
    assert found["LP001"].status == "failed"
    assert not any(result.status in BAD for label, result in found.items() if label != "LP001")


def test_a_case_that_never_acts_is_skipped_and_never_a_pass() -> None:
    found = results(Bias, cases=(Case.parse({"extra_args": {"unrelated": 1}}),), select=("LP2",)).values()
    needing = [result for result in found if by_code()[result.code].needs_action]
    assert needing
    assert {(result.status, result.never_active) for result in needing} == {("skipped", True)}
    assert all("never active" in result.message for result in needing)
    assert not any("never_active" in result.to_json() for result in found)
    assert inactive(found)


@pytest.mark.parametrize(
    ("cls", "case", "texts", "absent"),
    [
        (Bias, {"extra_args": {"unrelated": 1}}, ["'bias'", "'unrelated'"], "validate_params"),
        (V2Presence, {"extra_args": {"unrelated": 1}}, [], "'bias'"),
        (Bias, {"extra_args": {"bias": "much"}}, ["validate_params refuses", "ValueError"], "unrelated"),
    ],
)
def test_a_hint_names_what_this_plugin_looked_at_or_why_it_refuses(
    cls: Any, case: dict[str, Any], texts: list[str], absent: str
) -> None:
    hint = Session("x", cls, Plan(cases=(Case.parse(case),))).hint()
    assert all(text in hint for text in texts)
    assert absent not in hint


def test_of_several_cases_the_worst_outcome_counts_and_a_skip_only_if_all_skip() -> None:
    other = Case.parse({"extra_args": {"unrelated": 1}})
    assert results(Bias, cases=(other, CASE), select=("LP202",))["LP202[v1]"].status == "passed"
    assert results(Promotes, cases=(other, CASE), select=("LP301",))["LP301[v1]"].status == "failed"


def test_a_failure_blocks_what_needs_it_and_a_blocked_check_is_never_named_as_the_root() -> None:
    session = Session("x", Bias, Plan(cases=(CASE,), select=("LP302",)))
    session.agenda.results["LP109[v1]"] = CheckResult("LP109", "", "v1", "failed")
    assert session.result("LP301[v1]").status == "blocked"
    assert session.result("LP302[v1]").message == "needs LP109"
    assert {"LP301[v1]", "LP302[v1]"}.isdisjoint(session.agenda.left)


def test_what_needs_a_check_that_met_a_method_that_hung_names_the_check_that_saw_it(tmp_path: Path) -> None:
    heart = pulse.Heart(pulse.Pulse(tmp_path), lambda: None)
    heart.hung = {"apply": "LP105[v1]"}
    pulse.start(heart)
    try:
        found = results(Bias, select=("LP301", "LP302"))
    finally:
        pulse.stop()
    assert found["LP109[v1]"].message == "needs LP105[v1]"
    assert {found["LP301[v1]"].message, found["LP302[v1]"].message} == {"needs LP105"}


def test_an_unforeseen_exception_of_the_plugin_is_its_failure_and_one_of_ours_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = by_code()["LP202"]

    def broken(self: Any, subject: Any) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(check, "run", broken)
    found = compute_check("LP202", Bias, case=CASE)
    assert found.status == "error"
    assert "lpkit" in found.message

    def of_plugin(self: Any, subject: Any) -> None:
        raise PluginError("apply", "raised something")

    monkeypatch.setattr(check, "run", of_plugin)
    assert compute_check("LP202", Bias, case=CASE).status == "failed"


def test_a_finding_gets_the_fix_of_its_check_and_the_line_at_fault() -> None:
    finding = compute_check("LP202", KeepsTheSlot, case=KeepsTheSlot.CASE).finding
    assert finding is not None
    # Of a check with a host in its fix, the part for this host.
    assert finding.fix.partition(":")[0] in by_code()["LP202"].sections()["fix"]
    file, _, number = finding.location.rpartition(":")
    assert "return False" in Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1]


def test_an_exception_by_the_way_gets_general_advice_and_one_that_is_the_rule_its_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fix_for(method: str) -> str:
        def broken(self: Any, subject: Any) -> None:
            raise PluginError(method, "raised something")

        monkeypatch.setattr(by_code()["LP301"], "run", broken)
        finding = compute_check("LP301", Bias, case=CASE).finding
        assert finding is not None
        assert finding.location == method_location(Bias, method)
        return finding.fix

    assert fix_for("apply") == by_code()["LP301"].sections()["fix"]
    assert fix_for("update_state") == fix("unexplained")


class TokenOfZero(Bias):
    """Takes the token 0 for no token."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state if state and state[0] else None


def test_a_given_case_that_never_changes_a_logit_is_noted_with_its_falsy_argument() -> None:
    zero, other = ({"extra_args": {"bias": 2.5, "token": token}} for token in (0, 7))
    for cases in ((zero, other), (zero,)):
        session = Session("x", TokenOfZero, Plan(cases=tuple(map(Case.parse, cases))))
        _ = session.requests
        (note,) = [note for note in session.notes if "changed no logit in runs" in note]
        assert Case.parse(zero).text in note and "`token` is 0" in note
        session = Session("x", Bias, Plan(cases=tuple(map(Case.parse, cases))))
        _ = session.requests
        assert not [note for note in session.notes if "changed no logit in runs" in note]


class OnlyTokenSeven(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if {"token", "bias"} & {*(params.extra_args or {})} and cls.read(params) != (7, 2.5):
            raise ValueError("token must be 7 and bias 2.5")


def test_requests_that_are_all_equal_are_noted() -> None:
    for cls, noted in ((OnlyTokenSeven, True), (Bias, False)):
        session = Session("x", cls, Plan(cases=(CASE,)))
        _ = session.requests
        assert any("all requests had the arguments" in note for note in session.notes) == noted
