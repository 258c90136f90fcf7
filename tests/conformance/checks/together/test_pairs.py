"""Each planted defect of a pair is caught by the check that is there for it; no correct pair is blamed."""

from __future__ import annotations

import pytest
import torch
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from zoo.pairs import CORRECT_PAIRS, PAIRS, PairOf


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def other_than_passed(results: list[CheckResult]) -> dict[str, CheckResult]:
    """Return the messages of checks that did not pass, by code."""
    return {item.code: item for item in results if item.status in ("failed", "advice", "error")}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_the_named_check_catches_the_pair_and_names_both_plugins(pair: PairOf) -> None:
    results = pair.results()
    found = other_than_passed(results)
    assert pair.code in found, [f"{item.label} {item.status} {item.message}" for item in results]
    assert {code for code, item in found.items() if item.status != "advice"} <= {pair.code}
    finding = found[pair.code].finding
    assert finding is not None
    text = " ".join((finding.summary, *finding.where.values()))
    assert pair.first.__name__ in text and pair.second.__name__ in text
    assert "extra_args" in finding.where["arguments"]


@pytest.mark.parametrize("pair", CORRECT_PAIRS, ids=lambda pair: pair.id)
def test_no_correct_pair_is_blamed(pair: PairOf) -> None:
    results = pair.results()
    assert {item.status for item in results} == {"passed"}, other_than_passed(results)


@pytest.mark.deep  # it is about the pairs, not about the checks
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.blamed], ids=lambda pair: pair.id)
def test_the_one_to_blame_passes_alone(pair: PairOf) -> None:
    select = ("LP102", "LP103", "LP108", "LP202", "LP203", "LP205", "LP211", "LP302", "LP305", "LP307", "LP308")
    plan = Plan(cases=(Case.parse(pair.blamed.CASE),), select=select)
    assert not other_than_passed(list(Session(pair.blamed.__name__, pair.blamed, plan).results()))
