"""Advice in place of failures, and findings that only one check reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lpkit
import numpy as np
import pytest
import torch
import zoo
from lpkit_conformance.checks.catalogue import all_checks
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import compute_check
from zoo.bases import Boost, Dense, Simple
from zoo.correct.v1 import Bias
from zoo.correct.v1_history import History
from zoo.lp206 import AddsLast
from zoo.lp211 import CopiesTheList
from zoo.registry import run_check


class ForcesAToken(Simple):
    """Leaves a row one token, masked or not."""

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits.fill_(-math.inf)
            logits[4] = amount
            return logits

        return apply


class AnswersNothing(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return None  # type: ignore[return-value]


class Divides(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        return bool(1 / (request.params.amount - request.params.amount))


def test_a_forced_token_that_was_masked_is_advice_with_a_fix_that_empties_no_row() -> None:
    result = compute_check("LP305", ForcesAToken, case=ForcesAToken.CASE)
    assert (result.status, result.finding and result.finding.fix) == ("advice", fix("forced", "LP305"))
    assert result.finding and result.finding.location.startswith(__file__)


@pytest.mark.parametrize(
    ("cls", "said"),
    [(AnswersNothing, "`admit` returns None"), (Divides, "declined because of an exception (ZeroDivisionError")],
)
def test_an_admit_that_lets_nobody_in_fails_one_check(cls: Any, said: str) -> None:
    specimen = zoo.Specimen(cls.__name__, cls, "portable", zoo.specimen("portable-LastAdmitted").case, "")
    results = zoo.run_all(specimen, select=("LP113", "LP201", "LP603"))
    assert {result.code for result in results if result.status == "failed"} == {"LP113"}
    failed = next(result for result in results if result.status == "failed")
    assert said in failed.message
    assert failed.finding and failed.finding.location.startswith(__file__)


class OneLimit(lpkit.LogitsProcessor):
    """The tutorial's mistake: the limit is a plain attribute."""

    history = "length"

    class Params(lpkit.Params, prefix="limit_"):
        token: lpkit.TokenId
        after: int = lpkit.Field(0, ge=0)

    token = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.token[request.slot] = request.params.token
        self.limit = request.params.after
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        logits[ids] = logits[ids] + (rows.output_len - self.limit).clamp(min=0).unsqueeze(1)


def test_a_quick_run_fails_the_mistake_that_only_a_later_case_shows() -> None:
    cases = ({"extra_args": {"limit_token": 7}}, {"extra_args": {"limit_token": 0, "limit_after": 2}})
    quick = tuple(check.code for check in all_checks() if check.quick)
    plan = Plan(cases=tuple(map(Case.parse, cases)), select=quick, quick=True, alone=True)
    failed = [result for result in Session("x", OneLimit, plan).results() if result.status == "failed"]
    assert {result.code for result in failed} == {"LP201"}
    assert failed[0].finding and failed[0].finding.state == "self.limit"


class CountsCalls(History):
    """Counts a request's calls instead of its tokens."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, 0]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            state[1] += 1
            logits[row, 5] += state[0] if state[1] > 3 else 0.0
        return logits


@pytest.mark.parametrize(("target", "code"), [(CountsCalls, "LP212"), (CopiesTheList, "LP211")])
def test_a_quick_run_fails_a_request_whose_state_does_not_follow_its_tokens(target: type[History], code: str) -> None:
    quick = tuple(check.code for check in all_checks() if check.quick)
    plan = Plan(cases=(Case.parse(target.CASE),), select=quick, quick=True, alone=True)
    failed = [result.code for result in Session("x", target, plan).results() if result.status == "failed"]
    assert failed == [code]


class NeedsItsKeys(Bias):
    """Expects its arguments in every request."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        assert params.extra_args.keys() & {"token", "bias"}
        return super().enter(params, prompt, outputs)


def test_requests_that_a_plugin_cannot_admit_are_left_out_and_everything_else_is_judged() -> None:
    case = {"extra_args": {"bias": 2.5, "token": 7}}
    plan = Plan(cases=(Case.parse(case),), select=("LP102", "LP109", "LP201", "LP202"))
    session = Session("x", NeedsItsKeys, plan)
    results = {result.code: result for result in session.results()}
    assert results["LP102"].status == "failed"
    assert {results[code].status for code in ("LP109", "LP201", "LP202")} == {"passed"}
    assert "see LP102" in session.notes[0]


class NeedsNoSeed(AddsLast):
    """Forgets additions' rows, and raises for requests with a seed."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        assert params.seed is None
        return super().enter(params, prompt, outputs)


def test_a_kind_of_requests_that_raises_is_reported_and_hides_no_other_defect() -> None:
    plan = Plan(cases=(Case.parse(AddsLast.CASE),), select=("LP104", "LP109", "LP206"))
    session = Session("x", NeedsNoSeed, plan)
    results = {result.code: result for result in session.results()}
    assert (results["LP104"].status, results["LP206"].status) == ("failed", "failed")
    assert "a request with a seed" in results["LP104"].message
    assert results["LP109"].status == "passed"
    said = "requests with a seed are left out: for them, update_state raised AssertionError: "
    assert session.notes[0].startswith(said)
    assert "(test_blame.py:" in session.notes[0]


class NeedsNoSeedAndFewRows(NeedsNoSeed):
    """Also raises in batches of more than six requests."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        assert len(logits) <= 6
        return super().apply(logits)


def test_what_is_left_out_is_told_where_no_check_could_tell_it() -> None:
    plan = Plan(cases=(Case.parse(AddsLast.CASE),), select=("LP104",))
    session = Session("x", NeedsNoSeedAndFewRows, plan)
    assert {result.code: result.status for result in session.results()}["LP104"] == "blocked"
    assert "raised AssertionError" in session.notes[0]


class AnswersWithNumpy(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        return np.bool_(super().add_request(req_idx, params))  # type: ignore[return-value]


def test_an_answer_of_numpy_is_an_answer() -> None:
    assert compute_check("LP301", AnswersWithNumpy, case=Boost.CASE).status == "passed"


@pytest.mark.parametrize(("name", "status"), [("PrintsItsRows", "advice"), ("KeepsAJournal", "failed")])
def test_an_operator_can_turn_lines_off_and_files_not(name: str, status: str) -> None:
    defect = zoo.specimen(f"v1-{name}")
    assert zoo.outcome(run_check(defect, "LP704"), "LP704") == {status}


@pytest.mark.parametrize(("name", "status"), [("GreenListOfPlaceholders", "advice"), ("InstalledGreenList", "failed")])
def test_edits_for_placeholders_fail_only_a_plugin_that_vllm_loads_by_itself(name: str, status: str) -> None:
    results = run_check(zoo.specimen(f"v1-{name}"), "LP508")
    assert zoo.outcome(results, "LP508") == {status}


def test_a_count_of_distinct_tokens_is_no_rule_of_lengths() -> None:
    assert zoo.outcome(run_check(zoo.specimen("v1-CountsKnown"), "LP508"), "LP508") == {"passed"}
