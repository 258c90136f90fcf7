"""The suite against the zoo: the intended check catches each planted defect, and no correct processor fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest
import zoo
from lpkit.loading import interfaces_of
from lpkit_conformance.checks.catalogue import all_checks
from lpkit_conformance.explanation import advice
from lpkit_conformance.results import CheckResult, Finding
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from zoo.registry import run_check

CHECKS = {check.code: check for check in all_checks()}
SEEDS = range(20)
FEW_SEEDS = range(1, 4)
EACH_INTERFACE = ("v1+v2-TwoFaced", "portable-PortableMinP", "adapter-AdapterReplays")
LONG = ("LP104", "LP109", "LP208", "LP219", "LP220", "LP221", "LP305", "LP504", "LP603", "LP808")
"""Two thirds of the time of a whole run: they take turns on correct processors, and `make matrix` runs all on all."""
FEW = {
    "adapter-AdapterReplays",
    "portable-PortableMinP",
    "v1+v2-TwoFaced",
    "v1-Bias",
    "v1-NoRepeatBigram",
    "v1-TwoKinds",
    "v2-UnlocksOnceWritten",
    "v2-V2MinP",
    "v2-V2Presence",
}
"""Of each style the sparse and the dense, with and without history; a portable sparse one with history is judged in
``tests/reference_plugins``."""
SLOW = {
    *("v2-KeepsParams", "portable-ExampleLP603", "adapter-CachesOutputs", "portable-ExampleLP208"),
    *("v1-KeepsALog", "v1-ExampleLP208", "v1-CachesByArgument", "v1-TalliesInAByte"),
    *("v1-LowersTheLastForty", "adapter-OrderOfWords", "v2-DrawsAtImport", "v1-SeedsByProcess"),
}
"""They take longer than all others of their check."""
OF_EACH_STYLE = {(defect.code, defect.style): defect.id for defect in reversed(zoo.DEFECTS)}.values()
DESCRIBED = [[defect.id for defect in zoo.DEFECTS if defect.described and defect.code == code] for code in CHECKS]
SAMPLE = {*OF_EACH_STYLE, *(identity for ids in DESCRIBED for identity in ids[:2])} - SLOW
"""Of each check a defect per style, and two whose fix, line or cause is known."""
PLAIN = [item for item in reversed(zoo.DEFECTS) if not item.also]
BROAD_LAST = sorted(PLAIN, key=lambda item: (item.id not in SAMPLE, item.id not in SLOW))
NOT_ALONE = {defect.code: defect.id for defect in BROAD_LAST}.values()
"""Of each check a defect that the checks that it requires judge, too: none of them may hide it."""
ON_ONE_HOST = {
    *("portable-ExampleLP101", "portable-TakesStatesForADevice", "portable-RequiresThePinning"),
    *("adapter-GrowsThePrompt", "portable-FirstSlots"),
}
"""Right by the rules of the other runner, or until rows move."""


def each(specimens: Iterable[zoo.Specimen], sample: set[str]) -> pytest.MarkDecorator:
    """A test for each specimen; `make broad` judges those outside of the sample."""
    return pytest.mark.parametrize(
        "specimen",
        [
            pytest.param(
                item,
                id=f"{item.code}-{item.id}" if isinstance(item, zoo.Defect) else item.id,
                marks=() if item.id in sample else pytest.mark.broad,
            )
            for item in specimens
        ],
    )


def explain(results: list[CheckResult]) -> str:
    """Describe a result for the reader of a failed test."""
    return "\n".join(
        f"{result.label} {result.status}: {result.message} {result.finding or ''}"
        for result in results
        if result.status != "passed"
    )


def caught(defect: zoo.Defect, results: list[CheckResult]) -> bool:
    """True if the check catches the defect on each host that it runs on."""
    wanted = {"advice", "failed"} if CHECKS[defect.code].tier == "advice" else {"failed"}
    statuses = zoo.outcome(results, defect.code) - ({"passed"} if defect.id in ON_ONE_HOST else set())
    return bool(statuses) and statuses <= wanted


def blamed(results: list[CheckResult]) -> list[CheckResult]:
    return [result for result in results if result.status in ("failed", "blocked", "error")]


@each(zoo.DEFECTS, SAMPLE)
def test_the_named_check_catches_the_defect(specimen: zoo.Defect) -> None:
    alone = specimen.id not in NOT_ALONE
    results = run_check(specimen, specimen.code) if alone else zoo.run_all(specimen, select=(specimen.code,))
    assert caught(specimen, results), f"{specimen.what}\n{explain(results)}"
    findings = [result.finding for result in results if result.finding]
    if specimen.fix:
        assert any(specimen.fix in finding.fix for finding in findings), findings
    if specimen.cause:
        assert any(specimen.cause in finding.cause for finding in findings), findings
    if specimen.state:
        assert any(specimen.state == finding.state for finding in findings), findings
    if specimen.line:
        assert any(specimen.line in line_of(finding.location) for finding in findings), findings
    if specimen.advice:
        assert any(advised(specimen, finding) for finding in findings), findings


def advised(defect: zoo.Defect, finding: Finding) -> bool:
    """True if a finding has the fix of this key, and the cause of this key if there is one."""
    groups = (defect.style, defect.code)
    has_cause = any(defect.advice in texts for texts in advice.CAUSES.values())
    cause = advice.cause(defect.advice, *groups) if has_cause else ""
    fix = advice.fix(defect.advice, *groups)
    edits = "|".join(map(template, advice.FIXES["repair"].values()))
    fixes = rf"{template(fix)}(; ({edits}))?"
    return bool(re.fullmatch(fixes, finding.fix) and re.search(template(cause), finding.cause))


def template(text: str) -> str:
    """Return a pattern of a text with names in braces."""
    return re.sub(r"\\\{\w+\\\}", ".+", re.escape(text))


def line_of(location: str) -> str:
    """The text of a line; empty without a location."""
    file, _, number = location.rpartition(":")
    return Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1] if number.isdigit() else ""


def left_out(specimen: zoo.Specimen) -> tuple[str, ...]:
    """LP604, which starts a process, LP606, which looks for some, and long checks; all seeds run all (`make deep`)."""
    turn = LONG[crc32(specimen.id.encode()) % len(LONG)]
    own = specimen.target.__module__.removeprefix("zoo.")[:5].upper()  # it lies with the defects that it resembles
    spared = () if specimen.id in EACH_INTERFACE else set(LONG) - {turn, own}
    return ("LP604", "LP606", *spared)


@pytest.mark.deep
@pytest.mark.parametrize("specimen", [i for i in zoo.DEFECTS if i.name.startswith("Example")], ids=lambda i: i.id)
def test_an_example_fails_no_check_but_its_own_and_those_that_it_names(specimen: zoo.Defect) -> None:
    of_the_style = {"LP004", "LP114", "LP701"}  # advice to raw classes that check arguments once: examples are short
    wrong = {result.code for result in zoo.run_all(specimen) if result.status in ("failed", "advice", "error")}
    assert wrong - of_the_style <= {specimen.code, *specimen.also}


@each(zoo.CORRECT, FEW)
def test_no_check_fails_a_correct_processor(specimen: zoo.Specimen) -> None:
    results = zoo.run_all(specimen, ignore=left_out(specimen))
    assert not blamed(results), explain(blamed(results))


@pytest.mark.deep  # `make quick` runs those of a changed check; all of them are the test above, of the same processors
@pytest.mark.parametrize("identity", sorted(FEW))
@pytest.mark.parametrize("code", CHECKS)
def test_the_check_alone_does_not_fail_a_correct_processor(code: str, identity: str) -> None:
    results = run_check(zoo.specimen(identity), code)
    assert not blamed(results), explain(blamed(results))


@pytest.mark.parametrize("name", [pytest.param("v2-V2Seeded", marks=pytest.mark.broad), "portable-PortableMinP"])
def test_another_process_agrees_on_a_correct_processor_and_none_is_left(name: str) -> None:
    results = [*run_check(zoo.specimen(name), "LP604"), *run_check(zoo.specimen(name), "LP606")]
    assert zoo.outcome(results, "LP604") == zoo.outcome(results, "LP606") == {"passed"}


@pytest.mark.parametrize("identity", ["v1-ForcedSequence", *EACH_INTERFACE])
def test_other_engines_find_nothing_wrong_with_a_correct_processor(identity: str) -> None:
    results = run_check(zoo.specimen(identity), "LP231")
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


def test_a_defect_lies_in_the_module_of_its_check() -> None:
    for defect in zoo.DEFECTS:
        module = getattr(defect.target, "__module__", "")
        assert not module.startswith("zoo.lp") or module[4:9] == defect.code.lower(), defect.id


def test_every_check_has_a_defect_that_it_must_catch() -> None:
    assert CHECKS.keys() == {defect.code for defect in zoo.DEFECTS}


def test_the_defects_are_of_all_styles() -> None:
    assert {"v1", "v2", "portable", "adapter"} <= {item.style for item in zoo.DEFECTS}


def test_names_are_unique() -> None:
    assert len({item.id for item in zoo.specimens()}) == len(zoo.specimens())


def test_the_correct_processors_of_make_test_are_of_every_style() -> None:
    assert {item.style for item in zoo.CORRECT} == {identity.partition("-")[0] for identity in FEW}
    assert {item.id for item in zoo.CORRECT} >= FEW


@pytest.mark.deep
@pytest.mark.parametrize("specimen", zoo.CORRECT, ids=lambda item: item.id)
def test_no_check_fails_a_correct_processor_under_any_seed(specimen: zoo.Specimen) -> None:
    # What LP604 compares does not depend on the seed.
    wrong = {seed: blamed(zoo.run_all(specimen, seed=seed, ignore=("LP604",))) for seed in SEEDS}
    assert not any(wrong.values()), "\n".join(f"seed {seed}: {explain(results)}" for seed, results in wrong.items())


@pytest.mark.deep
@each(zoo.DEFECTS, set())
def test_the_named_check_catches_the_defect_under_other_seeds(specimen: zoo.Defect) -> None:
    for seed in FEW_SEEDS:
        results = run_check(specimen, specimen.code, seed=seed)
        assert caught(specimen, results), f"{specimen.what}\nseed {seed}: {explain(results)}"
