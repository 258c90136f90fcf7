"""One cause is one finding: its consequences are blocked by the check that names it."""

from __future__ import annotations

import pytest
import torch
import zoo
from lpkit.v1 import BatchUpdate
from lpkit_conformance.results import CheckResult, Finding, TargetResult
from lpkit_conformance.settings.cases import Case
from zoo.correct.v1 import ByHand
from zoo.lp104 import FewFactors


@pytest.mark.parametrize(
    ("name", "consequences"),
    [
        ("StrictlyAbove", ("LP111",)),
        ("TwinsByPrompt", ("LP112",)),
        ("FlatTable", ("LP221",)),
        ("MeasuresPrompt", ("LP403",)),
        ("DeviationOfMasked", ("LP307",)),
        ("SeedsByClock", ("LP601", "LP303")),
        ("DrawsPerCall", ("LP108", "LP601")),
    ],
)
def test_what_follows_from_a_failed_check_is_not_a_finding_of_its_own(name: str, consequences: tuple[str, ...]) -> None:
    defect = next(item for item in zoo.DEFECTS if item.name == name)
    results = zoo.run_all(defect, select=(defect.code, *consequences))
    assert {result.code for result in results if result.status == "failed"} == {defect.code}
    assert all("blocked" in zoo.outcome(results, code) for code in consequences)


@pytest.mark.parametrize(("name", "other"), [("DoublesTheDefault", "LP304"), ("DoublesTheDefaultOnV2", "LP601")])
def test_lpkit_makes_no_tensors_in_a_default_dtype_that_the_plugin_changes(name: str, other: str) -> None:
    defect = next(item for item in zoo.DEFECTS if item.name == name)
    assert zoo.outcome(zoo.run_all(defect, select=(other,)), other) == {"passed"}


def test_a_rare_draw_is_not_taken_for_a_clock() -> None:
    results = zoo.run_all(zoo.specimen("v2-DrawsRarely"), select=("LP602", "LP605"))
    assert {result.code for result in results if result.status == "failed"} == {"LP602"}


class Stays(ByHand):
    """Its requests' state stays in its row when they move."""

    def moves(self, update: BatchUpdate) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.rows = {row: state for row, state in self.rows.items() if row < len(logits)}
        return super().apply(logits)


class StaysAndDraws(Stays):
    """It also draws a number that nothing reads."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        torch.rand(1)
        return super().apply(logits)


class StaysAndRaises(Stays, FewFactors):
    """It also raises once an output has 36 tokens."""


@pytest.mark.parametrize(("target", "other"), [(StaysAndDraws, "LP602"), (StaysAndRaises, "LP104")])
def test_what_spoils_no_logits_of_short_outputs_hides_no_forgotten_move(target: type[Stays], other: str) -> None:
    defect = zoo.Defect(target.__name__, target, "v1", Case.parse(Stays.CASE), "", code="LP204")
    results = zoo.run_all(defect, select=("LP204", "LP601", "LP402", other))
    assert {result.code for result in results if result.status == "failed"} == {"LP204", other}


@pytest.mark.parametrize("name", ["FalseClaim", "FalseOnTies"])
def test_a_planted_false_claim_is_all_that_is_wrong_with_it(name: str) -> None:
    defect = next(item for item in zoo.DEFECTS if item.name == name)
    assert zoo.outcome(zoo.run_all(defect, select=("LP308",)), "LP308") == {"passed"}


def test_what_everyday_requests_meet_comes_before_odd_arguments() -> None:
    odd, usual = Finding("odd", {"argument": "x=5e-324"}), Finding("usual", {"row": "0"}, vague=True)
    checks = [CheckResult(each.summary, "", "", "failed", finding=each) for each in (odd, usual)]
    assert [group.check.code for group in TargetResult("", (), tuple(checks)).together("failed")] == ["usual", "odd"]


def test_a_slot_that_was_not_cleared_is_no_edit_of_a_declined_request() -> None:
    results = zoo.run_all(next(item for item in zoo.DEFECTS if item.name == "KeepsTheSlot"), select=("LP202", "LP302"))
    assert {result.code for result in results if result.status == "failed"} == {"LP202"}
