"""A verdict is a function of the rule and the plugin: what ran before, or did not run, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from zlib import crc32

import pytest
import zoo
from lpkit_conformance.checks.catalogue import by_code
from lpkit_conformance.processes.codec import decode, encode
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Requests
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import checks
from zoo.correct.v1 import Bias
from zoo.registry import Specimen

APART = ("LP604", "LP606")
"""Checks that start processes or look for some, seconds each."""
SOME = ("LP102", "LP108", "LP109", "LP112", "LP202", "LP203", "LP302", "LP403", "LP601")
"""Checks that learn what the others learn as well: refusals, activity, histories."""

SPECIMENS = sorted([*zoo.CORRECT, *zoo.DEFECTS], key=lambda item: crc32(item.id.encode()))[:60]


class RaisesForAnothersKey(Bias):
    """Takes for granted that arguments are its own."""

    @classmethod
    def read(cls, params: Any) -> Any:
        if params.extra_args:
            params.extra_args["bias"]
        return super().read(params)


class Promotes(Bias):
    """Returns another dtype, which LP301 reports."""

    def apply(self, logits: Any) -> Any:
        return super().apply(logits).double()


RAISES = Specimen("RaisesForAnothersKey", RaisesForAnothersKey, "v1", zoo.registry.Case.parse(Bias.CASE), "")
FEW = [RAISES, pytest.param(next(item for item in SPECIMENS if item.style == "v2"), marks=pytest.mark.broad)]


@cache
def judged(specimen: Specimen, ignore: tuple[str, ...] = (), **plan: Any) -> dict[str, CheckResult]:
    """Return each check's result, without the time it took; each plan runs once."""
    given = Plan(cases=specimen.cases, ignore=(*APART, *ignore), **plan)
    with specimen.surroundings():
        results = Session(specimen.id, specimen.target, given).results()
        return {result.label: replace(result, seconds=0.0) for result in results}


def said(results: dict[str, CheckResult], labels: Sequence[str]) -> dict[str, CheckResult]:
    return {label: results[label] for label in labels if label in results}


def said_in_any_company(specimen: Specimen, codes: Sequence[str] | None = None, select: tuple[str, ...] = ()) -> None:
    whole = judged(specimen, select=select)
    labels = [label for label, result in whole.items() if result.status != "blocked"]
    failed = {result.code for result in whole.values() if result.status in ("failed", "error")}
    reverse = judged(specimen, select=select, first=tuple(reversed(by_code("reference"))))
    assert said(reverse, labels) == said(whole, labels)
    if failed:
        without = judged(specimen, tuple(failed), select=select)
        assert said(without, list(without)) | said(whole, labels) == said(whole, labels) | {
            label: result for label, result in without.items() if label not in labels
        }
    with specimen.surroundings():  # as in a second child, or after a lost one
        requests = Session(specimen.id, specimen.target, Plan(cases=specimen.cases)).requests
        seen = decode(Requests, encode(requests))
        plan = Plan(cases=specimen.cases, select=select, ignore=APART, requests=seen)
        later = Session(specimen.id, specimen.target, plan)
        half = {label: replace(later.judged(label), seconds=0.0) for label in labels[1::2]}
    assert half == said(whole, labels[1::2])
    for code in dict.fromkeys(whole[label].code for label in labels) if codes is None else codes:
        alone = {label: result for label, result in judged(specimen, select=(code,)).items() if label in labels}
        assert alone == said(whole, list(alone))


@pytest.mark.deep
@pytest.mark.parametrize("specimen", [RAISES, *SPECIMENS], ids=lambda item: item.id)
def test_each_check_says_what_it_says_in_the_whole_run(specimen: Specimen) -> None:
    said_in_any_company(specimen)


@pytest.mark.parametrize("specimen", FEW, ids=lambda item: item.id)
def test_some_checks_say_what_they_say_in_the_whole_run(specimen: Specimen) -> None:
    said_in_any_company(specimen, ["LP109", "LP203", "LP302", "LP112"], SOME)


def test_requests_that_one_check_refuses_do_not_reach_the_others() -> None:
    results = judged(RAISES, select=SOME)
    assert (results["LP102"].status, results["LP109[v1]"].status) == ("failed", "passed")
    assert judged(RAISES, ("LP102",), select=SOME)["LP109[v1]"] == results["LP109[v1]"]


def test_a_test_under_pytest_says_what_the_whole_run_says() -> None:
    whole = judged(RAISES, select=SOME)
    tests = checks(f"{__file__}:RaisesForAnothersKey", cases=[Bias.CASE], ignore=APART)
    by_label = {test.label: test for test in tests}
    by_label["LP109[v1]"].run()
    with pytest.raises(AssertionError, match="LP102"):
        by_label["LP102"].run()
    assert whole["LP109[v1]"].status == "passed"


def test_a_test_that_is_blocked_by_a_check_without_a_test_fails() -> None:
    tests = checks(f"{__file__}:Promotes", cases=[Bias.CASE], ignore=APART)
    selected = [test for test in tests if test.code in ("LP203", "LP204")]  # as with `-k "LP203 or LP204"`
    with pytest.raises(AssertionError, match="LP301"):
        selected[0].run()
    with pytest.raises(pytest.skip.Exception, match="LP301"):
        selected[1].run()
