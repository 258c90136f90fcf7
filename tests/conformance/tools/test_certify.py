"""The tool that certifies releases: what it makes of what ran."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from certify import __main__ as command
from certify import page, trials
from certify.environment import TORCH, USUAL, Environment, plugins_here
from commands import CommandFailed

PLUGINS = {
    "lpkit-a": {"verdict": "pass", "runners": {"v1": [5, 5], "v2": [6, 6]}, "problems": []},
    "lpkit-b": {
        "verdict": "fail",
        "runners": {"v1": [5, 5], "v2": [5, 6]},
        "problems": ["LP903[v2]: touched a neighbour"],
    },
}
RESULT = {"torch": "2.13.0", "date": "2026-11-22", "revision": "abc1234", "plugins": PLUGINS}
REPORT = """<testsuites><testsuite>
<testcase classname="tests.engine.test_loading" name="a"/>
<testcase classname="tests.engine.test_loading" name="b"><failure message="no"/></testcase>
<testcase classname="tests.engine.test_online" name="c"><error message="no"/></testcase>
</testsuite></testsuites>"""


def test_the_page_counts_clean_plugins_by_runner_and_names_what_did_not_pass() -> None:
    text = page.text(
        {"0.9.2": RESULT, "0.31.0": {**RESULT, "tests": {"passed": 3, "failed": {"test_x": 2}, "problems": []}}}
    )
    rows = [line for line in text.splitlines() if line.startswith("| 0.")]
    assert [row.split(" | ")[0] for row in rows] == ["| 0.31.0", "| 0.9.2"], "the newest first, by number"
    assert "| 2 of 2 pass, 10 checks | 1 of 2 pass, 11 checks | 3 passed, 2 failed |" in rows[0]
    assert "| not run |" in rows[1]
    assert "- lpkit-b: LP903[v2]: touched a neighbour" in text
    assert "- `tests/engine/test_x.py`: 2 failed" in text


def test_a_plugin_that_could_not_be_judged_has_not_passed() -> None:
    plugins = {**PLUGINS, "lpkit-c": {"verdict": "error", "runners": {"v1": [2, 2]}, "problems": ["never active"]}}
    assert "| 2 of 3 pass, 10 checks |" in page.text({"0.31.0": {**RESULT, "plugins": plugins}})


def test_a_release_without_v2_says_so() -> None:
    only_v1 = {"lpkit-a": {"verdict": "pass", "runners": {"v1": [5, 5]}, "problems": []}}
    assert "| 1 of 1 pass, 5 checks | no runner for plugins |" in page.text({"0.27.1": {**RESULT, "plugins": only_v1}})


def test_failures_and_errors_of_tests_are_counted_by_file() -> None:
    assert trials.tests_of(REPORT) == {"passed": 1, "failed": {"test_loading": 1, "test_online": 1}, "problems": []}


@pytest.mark.parametrize(("release", "left_out"), [("0.30.0", True), ("0.31.0", False)])
def test_where_v2_runs_no_processors_its_tests_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, left_out: bool
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(trials.subprocess, "run", lambda command, **_: ran.append(command))
    assert trials.try_tests(Environment(release, tmp_path))["problems"] == ["no report"]
    assert (ran[0][-2:] == ["-k", "not v2"]) == left_out


@pytest.mark.parametrize(
    ("printed", "verdict", "runners", "problems"),
    [
        ("no engine", "error", {}, ["no engine"]),
        (
            json.dumps(
                {
                    "targets": [
                        {
                            "verdict": "fail",
                            "error": "",
                            "checks": [
                                {"code": "LP901", "host": "v1", "status": "passed", "message": ""},
                                {"code": "LP903", "host": "v1", "status": "failed", "message": "bad"},
                                {"code": "LP902", "host": "v1", "status": "skipped", "message": "greedy"},
                            ],
                        }
                    ]
                }
            ),
            "fail",
            {"v1": [1, 2]},
            ["LP903[v1]: bad"],
        ),
    ],
)
def test_a_plugins_report_becomes_counts_and_problems(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    printed: str,
    verdict: str,
    runners: dict[str, list[int]],
    problems: list[str],
) -> None:
    monkeypatch.setattr(trials.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=printed, stderr=""))
    outcome = trials.try_plugin(Environment("0.32.0", tmp_path), tmp_path)
    assert outcome == {"verdict": verdict, "runners": runners, "problems": problems}


def test_a_stopped_run_goes_on_where_it_was_and_a_release_that_does_not_install_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def prepare(environment: Environment, _: object) -> None:
        if environment.release == "0.18.0":
            raise CommandFailed("no such release")

    def try_plugin(environment: Environment, folder: Path) -> dict[str, object]:
        tried.append(folder.name)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return {"verdict": "pass", "runners": {"v1": [5, 5]}, "problems": []}

    monkeypatch.setattr(Environment, "prepare", prepare)
    monkeypatch.setattr(command, "try_plugin", try_plugin)
    arguments = [
        "certify",
        "--work",
        str(tmp_path),
        "--page",
        str(tmp_path / "releases.md"),
        "--only",
        "0.32.0",
        "0.18.0",
    ]
    monkeypatch.setattr(command.sys, "argv", arguments)
    with pytest.raises(KeyboardInterrupt):
        command.main()
    assert command.main() == 1, "one release was not installed"
    assert "0.18.0\n  not installed: no such release" in capsys.readouterr().out
    plugins = [folder.name for folder in plugins_here()]
    assert tried == [*plugins[:2], plugins[2], *plugins[2:]], "each once, and the one that was interrupted again"
    kept = json.loads((tmp_path / "releases.json").read_text())
    assert list(kept["0.32.0"]["plugins"]) == plugins


def test_the_usual_releases_take_the_torch_of_this_repository() -> None:
    pinned = (Path(__file__).parents[3] / "Makefile").read_text()
    assert {TORCH[release] for release in USUAL} == {pinned.partition("TORCH ?= torch==")[2].partition("\n")[0]}
