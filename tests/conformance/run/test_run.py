"""Targets run with their own settings, and announced failures are judged."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from lpkit.interfaces import lookup
from lpkit_conformance import run
from lpkit_conformance.checks.catalogue import chosen
from lpkit_conformance.errors import CaseError, ProjectError, UsageError
from lpkit_conformance.results import CheckResult, Report, TargetResult
from lpkit_conformance.run import Options, expect, known_code, plan_for
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.settings.project import ExpectedFailure, Project

PAST = datetime.date(2020, 1, 1)
FUTURE = datetime.date(2999, 1, 1)


def result(*statuses: str, code: str = "LP202", error: str = "") -> TargetResult:
    hosts = ("v1", "v2")
    checks = [CheckResult(code, "x", host, status) for host, status in zip(hosts, statuses, strict=False)]
    return TargetResult("t", hosts, (CheckResult("LP001", "y", "", "passed"), *checks), error=error)


def after(found: TargetResult, **announced: object) -> list[str]:
    judged = expect(found, [ExpectedFailure("LP202", "why", **announced)])
    return [check.status for check in judged.checks if check.code == "LP202"]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (["failed"], ["expected"]),
        (["failed", "failed"], ["expected", "expected"]),
        (["failed", "passed"], ["expected", "passed"]),
        (["passed", "passed"], ["unexpected_pass", "unexpected_pass"]),
        (["passed", "skipped"], ["unexpected_pass", "skipped"]),
        (["skipped", "blocked"], ["skipped", "blocked"]),
        (["advice"], ["expected"]),
        (["error"], ["error"]),
    ],
)
def test_an_announced_failure_must_come_on_one_host(before: list[str], expected: list[str]) -> None:
    assert after(result(*before)) == expected


def test_an_announced_failure_makes_no_verdict_and_an_unexpected_pass_does() -> None:
    announced = [ExpectedFailure("LP202", "why")]
    assert expect(result("failed"), announced).verdict == "pass"
    assert expect(result("passed"), announced).verdict == "fail"


def test_an_announcement_expires_and_says_so() -> None:
    assert after(result("failed"), until=FUTURE) == ["expected"]
    assert after(result("failed"), until=PAST) == ["failed"]
    judged = expect(result("failed"), [ExpectedFailure("LP202", "why", PAST)])
    assert "was expected until 2020-01-01: why" in judged.checks[1].message


def test_other_checks_are_not_excused() -> None:
    assert expect(result("failed", code="LP203"), [ExpectedFailure("LP202", "why")]).verdict == "fail"


@pytest.mark.parametrize(
    ("verdicts", "expected", "code"),
    [
        ([], "error", 2),
        (["passed"], "pass", 0),
        (["passed", "failed"], "fail", 1),
        (["passed", "skipped"], "error", 2),
        (["failed", "skipped"], "fail", 1),
    ],
)
def test_the_worst_target_decides(verdicts: list[str], expected: str, code: int) -> None:
    checks = (CheckResult("LP202", "x", "v1", status) for status in verdicts)
    report = Report(tuple(TargetResult("t", ("v1",), (check,)) for check in checks))
    assert (report.verdict, report.exit_code) == (expected, code)


def test_a_failure_counts_more_than_a_run_that_was_given_up() -> None:
    assert result("failed", error="gave up").verdict == "fail"
    assert result("passed", error="gave up").verdict == "error"


@pytest.mark.parametrize(("code", "known"), [("LP202", "LP202"), ("lp202", "LP202"), ("LP2", "LP2"), ("lp", "LP")])
def test_a_code_or_the_beginning_of_codes_is_known(code: str, known: str) -> None:
    assert known_code(code) == known


def test_a_projects_wrong_case_is_reported_before_any_target_runs(tmp_path, monkeypatch) -> None:
    ran = []
    monkeypatch.setattr(run, "check_target", lambda *arguments: ran.append(arguments))
    (tmp_path / "mine.py").touch()
    (tmp_path / "pyproject.toml").write_text("[tool.lpkit]\ncases = [{temprature = 1}]\n", encoding="utf-8")
    with pytest.raises(ProjectError, match=r"pyproject.toml: \[tool.lpkit\] .*did you mean 'temperature'"):
        run.run(["theirs:X", "mine:Y"], Options(), tmp_path)
    assert ran == []


def project(tmp_path: Path) -> Project:
    return Project(
        tmp_path,
        {"mine": "pkg:Mine"},
        cases=({"extra_args": {"bias": 1}},),
        hosts=("v1",),
        vocab_size=256,
        max_num_seqs=4,
    )


def test_options_win_over_the_project_and_the_project_over_defaults(tmp_path) -> None:
    plan = plan_for(Options(), project(tmp_path))
    assert (plan.hosts, plan.vocab_size, plan.max_num_seqs) == (("v1",), 256, 4)
    assert plan.cases[0].fields == {"extra_args": {"bias": 1}}
    plan = plan_for(Options(cases=('{"temperature": 0.5}',), hosts=("v2",)), project(tmp_path))
    assert plan.hosts == ("v2",)
    assert [case.fields for case in plan.cases] == [{"temperature": 0.5}]
    plan = plan_for(Options())
    assert (plan.hosts, plan.vocab_size, plan.max_num_seqs) == (None, 512, 8)
    with pytest.raises(UsageError, match="device must be one of auto, cpu, cuda"):
        plan_for(Options(device="tpu"))


def test_settings_go_to_the_projects_targets_only(tmp_path, monkeypatch) -> None:
    seen = {}

    def check_target(spec: str, plan: Plan, path: list[str], *_: object, **__: object) -> TargetResult:
        seen[spec] = (plan.vocab_size, bool(path))
        return result("failed")

    monkeypatch.setattr(run, "check_target", check_target)
    monkeypatch.setattr(
        projects, "find", lambda _: replace(project(tmp_path), expected=(ExpectedFailure("LP202", "why"),))
    )
    report = run.run(["mine", "theirs:X", "mine"], Options(), tmp_path)
    assert seen == {"pkg:Mine": (256, True), "theirs:X": (512, False)}
    assert [target.target for target in report.targets] == ["mine", "theirs:X"]
    assert [target.verdict for target in report.targets] == ["pass", "fail"]


def test_without_targets_the_projects_entry_points_are_checked(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run, "check_target", lambda *_, **__: result("passed"))
    monkeypatch.setattr(projects, "find", lambda _: project(tmp_path))
    assert [target.target for target in run.run([], Options(), tmp_path).targets] == ["mine"]


def test_a_selected_check_brings_what_it_requires_and_an_ignored_one_stays_out() -> None:
    codes = [check.code for check in chosen(Plan(select=("LP202",)))]
    assert codes[-1] == "LP202"
    assert "LP001" in codes
    assert codes.index("LP001") < codes.index("LP301") < codes.index("LP201")
    assert "LP201" not in [check.code for check in chosen(Plan(ignore=("LP201",)))]


def test_without_vllm_in_this_process_only_the_form_of_a_case_is_judged(monkeypatch) -> None:
    monkeypatch.setattr(lookup, "left_out", lambda: True)
    assert plan_for(Options(cases=('{"a_field_of_the_next_vllm": 1}',))).cases[0].fields
    with pytest.raises(CaseError, match="not JSON"):
        plan_for(Options(cases=("{",)))


def test_a_plugin_finds_the_environment_that_its_project_gives(tmp_path: Path) -> None:
    (tmp_path / "needy.py").write_text(
        "import os\nimport lpkit\nTABLE = os.environ['LPKIT_TEST_TABLE']\n"
        "class P(lpkit.LogitsProcessor):\n    def process(self, logits, rows):\n        return logits\n",
        encoding="utf-8",
    )
    entry = '[project.entry-points."vllm.logits_processors"]\nneedy = "needy:P"\n[tool.lpkit]\n'
    statuses = []
    for settings in ("", 'environment = {LPKIT_TEST_TABLE = "a"}\n'):
        (tmp_path / "pyproject.toml").write_text(entry + settings, encoding="utf-8")
        (target,) = run.run(["needy"], Options(select=("LP001",)), tmp_path).targets
        statuses.append(target.checks[0].status)
    assert statuses == ["failed", "passed"]
