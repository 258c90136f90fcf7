"""The suite against the zoo: each planted defect is caught by the check that is there for it; no correct one fails."""

from __future__ import annotations

from typing import Any

import pytest
import zoo
from lpkit.loading import interfaces_of
from lpkit_conformance.catalogue import all_checks
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session

CHECKS = {check.code: check for check in all_checks()}
SEEDS = range(20)
FEW_SEEDS = range(1, 4)


def explain(results: list[CheckResult]) -> str:
    """What a reader of a failed test wants to know."""
    return "\n".join(
        f"{result.label} {result.status}: {result.message} {result.finding or ''}"
        for result in results
        if result.status != "passed"
    )


def detected(defect: zoo.Defect, seed: int = 0) -> tuple[bool, str]:
    results = zoo.run_all(defect, select=(defect.code,), seed=seed)
    wanted = "advice" if CHECKS[defect.code].tier == "advice" else "failed"
    return wanted in zoo.outcome(results, defect.code), explain(results)


def blamed(results: list[CheckResult]) -> list[CheckResult]:
    return [result for result in results if result.status in ("failed", "blocked", "error")]


@pytest.mark.parametrize("defect", zoo.DEFECTS, ids=lambda item: f"{item.code}-{item.id}")
def test_the_named_check_catches_the_defect(defect: zoo.Defect) -> None:
    caught, why = detected(defect)
    assert caught, f"{defect.what}\n{why}"


@pytest.mark.parametrize("specimen", zoo.CORRECT, ids=lambda item: item.id)
def test_no_check_fails_a_correct_processor(specimen: zoo.Specimen) -> None:
    # LP604 starts a process, and LP606 looks for some; a sample of each style has to do.
    results = zoo.run_all(specimen, ignore=("LP604", "LP606"))
    assert not blamed(results), explain(blamed(results))


@pytest.mark.parametrize("name", ["Bias", "V2Seeded", "TwoFaced", "PortableMinP", "AdapterReplays"])
def test_another_process_agrees_on_a_correct_processor_and_none_is_left(name: str) -> None:
    specimen = next(item for item in zoo.CORRECT if item.name == name)
    results = zoo.run_all(specimen, select=("LP604", "LP606"))
    assert zoo.outcome(results, "LP604") == zoo.outcome(results, "LP606") == {"passed"}


@pytest.mark.parametrize("name", ["Bias", "Cycle", "ForcedSequence", "TwoFaced", "PortableMinP", "AdapterReplays"])
def test_other_engines_find_nothing_wrong_with_a_correct_processor(name: str) -> None:
    specimen = next(item for item in zoo.CORRECT if item.name == name)
    results = zoo.run_all(specimen, select=("LP231",))
    assert zoo.outcome(results, "LP231") == {"passed"}, explain(results)


@pytest.mark.deep
@pytest.mark.parametrize(
    "specimen", [item for item in zoo.CORRECT if "v1" in interfaces_of(item.target)], ids=lambda i: i.id
)
def test_no_check_on_the_export_host_fails_a_correct_processor(specimen: zoo.Specimen) -> None:
    plan = Plan(cases=specimen.cases, ignore=("LP604", "LP606"), hosts=("export",))
    with specimen.surroundings():
        results = list(Session(specimen.id, specimen.target, plan).results())
    assert not blamed(results), explain(blamed(results))


def test_every_check_has_a_defect_that_it_must_catch() -> None:
    assert CHECKS.keys() == {defect.code for defect in zoo.DEFECTS}


def test_the_zoo_is_large_and_of_all_styles() -> None:
    assert len(zoo.DEFECTS) >= 60
    assert len(zoo.CORRECT) >= 20
    assert {"v1", "v2", "portable", "adapter"} <= {item.style for item in zoo.DEFECTS}
    assert {"v1", "v2", "portable", "adapter"} <= {item.style for item in zoo.CORRECT}


def test_names_are_unique() -> None:
    listed: list[Any] = [*zoo.CORRECT, *zoo.DEFECTS, *zoo.MISSED]
    assert len({item.id for item in listed}) == len(listed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("specimen", zoo.CORRECT, ids=lambda item: item.id)
def test_no_check_fails_a_correct_processor_under_any_seed(specimen: zoo.Specimen, seed: int) -> None:
    # What LP604 compares does not depend on the seed.
    results = zoo.run_all(specimen, seed=seed, ignore=("LP604",))
    assert not blamed(results), explain(blamed(results))


@pytest.mark.deep
@pytest.mark.parametrize("seed", FEW_SEEDS)
@pytest.mark.parametrize("defect", zoo.DEFECTS, ids=lambda item: f"{item.code}-{item.id}")
def test_the_named_check_catches_the_defect_under_other_seeds(defect: zoo.Defect, seed: int) -> None:
    caught, why = detected(defect, seed)
    assert caught, f"{defect.what}\n{why}"
