"""``lpkit check --together``: which pairs are checked, in children of their own, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit_cli.app import app
from lpkit_conformance import run
from lpkit_conformance.checks.catalogue import all_checks
from lpkit_conformance.errors import UsageError
from lpkit_conformance.report import formats
from lpkit_conformance.results import CheckResult, TargetResult
from lpkit_conformance.run import TOGETHER, Options
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.settings.project import ExpectedFailure, Project
from lpkit_conformance.suite.pairs import short_names
from lpkit_conformance.suite.supervisor import check_target
from typer.testing import CliRunner

HERE = Path(__file__).parents[1]
PAIRS = HERE / "zoo" / "pairs.py"
OPTIONS = Options(engine="together")


def lpkit(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *arguments])
    assert "Traceback" not in done.output
    return done.exit_code, done.output


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The pairs passed to child processes, none of which is started."""
    seen: list[tuple[str, str]] = []

    def note(spec: str, plan: Plan, path: list[str], *rest: Any) -> TargetResult:
        seen.append((spec, rest[-1][0]))
        return TargetResult(spec, ("v1",), (CheckResult("LP229", "x", "v1", "advice", "clash"),))

    monkeypatch.setattr(run, "check_target", note)
    return seen


def test_every_two_targets_are_checked_once(checked: list[tuple[str, str]], tmp_path: Path) -> None:
    report = run.run(["a:A", "b:B", "c:C", "a:A"], OPTIONS, tmp_path)
    assert checked == [("a:A", "b:B"), ("a:A", "c:C"), ("b:B", "c:C")]
    assert [target.target for target in report.targets] == ["a:A + b:B", "a:A + c:C", "b:B + c:C"]
    assert [item["target"] for item in report.targets[0].settings["together"]] == ["a:A", "b:B"]


def test_without_targets_the_projects_and_what_is_installed_are_checked(
    checked: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry:
        name = "installed"

    monkeypatch.setattr(projects, "find", lambda _: Project(tmp_path, {"mine": "pkg:Mine"}))
    monkeypatch.setattr(run, "entry_points", lambda group: [Entry] if group == "vllm.logits_processors" else [])
    run.run([], OPTIONS, tmp_path)
    assert checked == [("pkg:Mine", "installed")]


def test_what_a_project_announces_excuses_a_pair_and_need_not_come_with_every_pair(
    checked: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = tuple(ExpectedFailure(code, "known") for code in ("LP229", "LP230"))
    monkeypatch.setattr(projects, "find", lambda _: Project(tmp_path, {"mine": "pkg:Mine"}, expected=announced))
    report = run.run(["mine", "b:B"], OPTIONS, tmp_path)
    assert [check.status for check in report.targets[0].checks] == ["expected"]


@pytest.mark.parametrize(
    ("targets", "options", "said"),
    [
        (["a:A"], OPTIONS, "--together needs two targets, and only a:A is named or installed"),
        (["a:A", "a:A"], OPTIONS, "--together needs two targets, and only a:A is named or installed"),
        (["a:A", "b:B"], replace(OPTIONS, quick=True), "omit --quick"),
        (["a:A", "b:B"], replace(OPTIONS, trace=Path("some.jsonl")), "omit --together"),
        (["a:A", "b:B"], replace(OPTIONS, hosts=("export",)), "omit --host export"),
        (["a:A", "b:B"], replace(OPTIONS, select=("LP301",)), "LP301 does not run with --together"),
        (["a:A", "b:B"], Options(select=("LP224",)), "LP224 is about two plugins; add --together"),
    ],
)
def test_what_cannot_run_is_refused(targets: list[str], options: Options, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        run.run(targets, options, tmp_path)


def test_a_real_engine_is_refused() -> None:
    assert lpkit("a:A", "b:B", "--together", "--engine", "vllm") == (
        2,
        "lpkit check: --together runs on the reference runtime: omit --engine\n",
    )


def test_the_checks_of_pairs_are_listed_with_together_only() -> None:
    code, output = lpkit("--list-checks", "--together")
    assert (code, [line.split()[0] for line in output.splitlines()]) == (0, [c.code for c in all_checks(TOGETHER)])
    assert "LP224" not in lpkit("--list-checks")[1]


def child(first: str, second: str) -> TargetResult:
    """Two classes of the zoo in a child process."""
    plans = [Plan(cases=(Case.parse(CASES[name]),), select=("LP224",)) for name in (first, second)]
    path = [str(HERE)]
    return check_target(f"zoo.pairs:{first}", plans[0], path, other=(f"zoo.pairs:{second}", plans[1]))


CASES = {
    "FirstOfFamily": {"extra_args": {"bias": 2.5, "token": 7}},
    "SecondOfFamily": {"extra_args": {"second_token": 9}},
    "Missing": {},
}


def test_a_pair_is_judged_in_a_child_process_and_every_format_shows_it(tmp_path: Path) -> None:
    found = child("FirstOfFamily", "SecondOfFamily")
    assert (found.hosts, found.interface, found.verdict) == (("v1",), "v1", "fail")
    assert [(check.label, check.status) for check in found.checks] == [("LP223", "passed"), ("LP224[v1]", "failed")]
    report = run.Report((replace(found, target="FirstOfFamily + SecondOfFamily"),))
    for name in formats.FORMATS:
        with (tmp_path / name).open("w+", encoding="utf-8") as file:
            formats.write(name, report, file)
            file.seek(0)
            assert "LP224" in file.read(), name


def test_a_target_that_does_not_load_is_named() -> None:
    found = child("FirstOfFamily", "Missing")
    assert found.verdict == "error"
    assert "zoo.pairs has no attribute 'Missing'" in found.error


def test_names_lose_their_modules_where_they_stay_different() -> None:
    assert short_names("a.b:X", "c:Y") == ("X", "Y")
    assert short_names("a:X", "b:X") == ("a:X", "b:X")
