"""One cause is one finding: its consequences are blocked by the check that names it."""

from __future__ import annotations

import pytest
import zoo
from lpkit_conformance.results import CheckResult, Finding, TargetResult


@pytest.mark.parametrize(
    ("name", "consequences"),
    [
        ("StrictlyAbove", ("LP111",)),
        ("TwinsByPrompt", ("LP112",)),
        ("FlatTable", ("LP221",)),
        ("MeasuresPrompt", ("LP403",)),
        ("DeviationOfMasked", ("LP307",)),
        ("SeedsByClock", ("LP601", "LP303")),
    ],
)
def test_what_follows_from_a_failed_check_is_not_a_finding_of_its_own(name: str, consequences: tuple[str, ...]) -> None:
    defect = next(item for item in zoo.DEFECTS if item.name == name)
    results = zoo.run_all(defect, select=(defect.code, *consequences))
    assert {result.code for result in results if result.status == "failed"} == {defect.code}
    assert all("blocked" in zoo.outcome(results, code) for code in consequences)


@pytest.mark.parametrize("name", ["FalseClaim", "FalseOnTies"])
def test_a_planted_false_claim_is_all_that_is_wrong_with_it(name: str) -> None:
    defect = next(item for item in zoo.DEFECTS if item.name == name)
    assert zoo.outcome(zoo.run_all(defect, select=("LP308",)), "LP308") == {"passed"}


def test_what_everyday_requests_meet_comes_before_odd_arguments() -> None:
    odd, usual = Finding("odd", {"argument": "x=5e-324"}), Finding("usual", {"row": "0"}, vague=True)
    checks = [CheckResult(each.summary, "", "", "failed", finding=each) for each in (odd, usual)]
    assert [group.check.code for group in TargetResult("", (), tuple(checks)).together("failed")] == ["usual", "odd"]
