"""A verdict is a function of the rule and the plugin: what ran before, or did not run, changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import zoo
from lpkit_conformance.checks.catalogue import by_code, one_report_each
from lpkit_conformance.processes.codec import decode, encode
from lpkit_conformance.processes.supervise import Event
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Requests
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.ahead import start_ahead
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.suite.supervisor import _Supervision, check_target
from lpkit_conformance.testing import BoundCheck, checks
from zoo.correct.v1 import Bias
from zoo.registry import Specimen

APART = ("LP604", "LP606")
"""Left out: they compare or look for other processes, which takes seconds each time, and no other check reads what they
learn."""
SOME = ("LP102", "LP108", "LP109", "LP203", "LP302", "LP601")
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
SPREAD = ("v1-LateCount", "v2-V2Seeded", "portable-LastAdmitted", "adapter-OrdinaryAdapter")
"""One of each style, two of them defects; `make deep` takes sixty."""


FEW = pytest.mark.parametrize(
    "specimen",
    [RAISES, *(pytest.param(zoo.specimen(identity), marks=pytest.mark.broad) for identity in SPREAD)],
    ids=lambda item: item.id,
)


@cache
def judged(specimen: Specimen, ignore: tuple[str, ...] = (), **plan: Any) -> dict[str, CheckResult]:
    """Return each check's result, without the time it took; each plan runs once."""
    given = Plan(cases=specimen.cases, ignore=(*APART, *ignore), **plan)
    with specimen.surroundings():
        results = Session(specimen.id, specimen.target, given).results()
        return {result.label: replace(result, seconds=0.0) for result in results}


def said(results: dict[str, CheckResult], labels: Iterable[str]) -> dict[str, CheckResult]:
    return {label: results[label] for label in labels if label in results}


def said_in_any_company(specimen: Specimen, codes: Sequence[str] | None = None, select: tuple[str, ...] = ()) -> None:
    whole = judged(specimen, select=select)
    labels = [label for label, result in whole.items() if result.status != "blocked"]
    reverse = judged(specimen, select=select, first=tuple(reversed(by_code("reference"))))
    assert said(reverse, labels) == said(whole, labels)
    failed = tuple({result.code for result in whole.values() if result.status in ("failed", "error")})
    without = judged(specimen, failed, select=select)
    assert said(without, labels) == said(whole, [label for label in labels if label in without])
    with specimen.surroundings():  # as in a second child, which gets the requests that the first has found
        requests = Session(specimen.id, specimen.target, Plan(cases=specimen.cases)).requests
        plan = Plan(cases=specimen.cases, select=select, ignore=APART, requests=decode(Requests, encode(requests)))
        later = Session(specimen.id, specimen.target, plan)
        half = {label: replace(later.judged(label), seconds=0.0) for label in labels[1::2]}
    assert half == said(whole, labels[1::2])
    for code in dict.fromkeys(whole[label].code for label in labels) if codes is None else codes:
        alone = judged(specimen, select=(code,))
        assert said(alone, labels) == said(whole, [label for label in labels if label in alone])


def target_of(specimen: Specimen) -> str:
    module = specimen.target.__module__
    return f"{__file__ if module == __name__ else module}:{specimen.target.__name__}"


@pytest.mark.deep
@pytest.mark.parametrize("specimen", [RAISES, *SPECIMENS], ids=lambda item: item.id)
def test_each_check_says_what_it_says_in_the_whole_run(specimen: Specimen) -> None:
    said_in_any_company(specimen)


@FEW
def test_some_checks_say_what_they_say_in_the_whole_run(specimen: Specimen) -> None:
    said_in_any_company(specimen, ["LP109", "LP203", "LP302"], SOME)


@FEW
def test_checks_say_the_same_after_a_lost_child(specimen: Specimen, monkeypatch) -> None:
    lost, select = f"LP305[{'v2' if specimen.style == 'v2' else 'v1'}]", (*SOME, "LP305")
    whole = {result.label: result for result in one_report_each([*judged(specimen, select=select).values()])}
    plan = Plan(cases=specimen.cases, select=select)
    take = _Supervision._take
    with start_ahead() as child:

        def ending(run: _Supervision, event: Event) -> None:
            take(run, event)
            if event.get("label") == lost:
                os.kill(child.pid, signal.SIGTERM)

        monkeypatch.setattr(_Supervision, "_take", ending)
        found = check_target(target_of(specimen), plan, [str(Path(zoo.__file__).parents[1])], ahead=child)
    results = {result.label: replace(result, seconds=0.0) for result in found.checks}
    assert results.pop(lost).status == "failed" and whole.pop(lost).status == "passed"
    assert results == whole


def test_requests_that_one_check_refuses_do_not_reach_the_others() -> None:
    results = judged(RAISES, select=SOME)
    assert (results["LP102"].status, results["LP109[v1]"].status) == ("failed", "passed")
    assert judged(RAISES, ("LP102",), select=SOME)["LP109[v1]"] == results["LP109[v1]"]


def outcome(test: BoundCheck) -> str:
    try:
        test.run()
    except AssertionError as error:
        return "failed" if f" {test.label} " in str(error) else "another failed"
    except pytest.skip.Exception:
        return "skipped"
    return "passed"


@FEW
def test_tests_under_pytest_say_what_the_whole_run_says(specimen: Specimen, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # failures are saved
    whole = judged(specimen, select=SOME)
    for codes in (("LP109", "LP601"), ("LP102", "LP201")):  # as with `-k "LP109 or LP601"`
        tests = checks(target_of(specimen), cases=[case.fields for case in specimen.cases], ignore=APART)
        selected = [next(test for test in tests if test.code == code) for code in codes]
        assert [outcome(test) for test in selected] == [whole[test.label].status for test in selected]


def test_a_test_that_is_blocked_by_a_check_without_a_test_fails() -> None:
    tests = checks(f"{__file__}:Promotes", cases=[Bias.CASE], ignore=APART)
    selected = [test for test in tests if test.code in ("LP203", "LP204")]  # as with `-k "LP203 or LP204"`
    with pytest.raises(AssertionError, match="LP301"):
        selected[0].run()
    with pytest.raises(pytest.skip.Exception, match="LP301"):
        selected[1].run()
