"""The tool that certifies releases: what it makes of what ran."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
<testcase classname="tests.engine.test_loading" name="b"><failure message="KeyError: 'no'"/></testcase>
<testcase classname="tests.engine.test_loading" name="c"><failure message="assert 1 == 2"/></testcase>
<testcase classname="tests.engine.test_online" name="d"><error message="RemoteError: KeyError: 'no'"/></testcase>
<testcase classname="tests.engine.test_online" name="e"><skipped message="needs vLLM 0.32"/></testcase>
</testsuite></testsuites>"""


def test_the_page_counts_clean_plugins_by_runner_and_names_what_did_not_pass() -> None:
    text = page.text(
        {
            "0.9.2": RESULT,
            "0.31.0": {
                **RESULT,
                "tests": {
                    "passed": 3,
                    "skipped": 4,
                    "failed": {"KeyError: 'no'": {"test_y": 1, "test_x": 2}},
                    "problems": [],
                    "revision": "abc1234",
                    "date": "2026-11-22",
                },
            },
        }
    )
    rows = [line for line in text.splitlines() if line.startswith("| 0.")]
    assert [row.split(" | ")[0] for row in rows] == ["| 0.31.0", "| 0.9.2"], "the newest first, by number"
    assert "| 2 of 2 pass, 10 checks | 1 of 2 pass, 11 checks | 3 passed, 4 skipped, 3 failed |" in rows[0]
    assert "| not run |" in rows[1]
    assert "- lpkit-b: LP903[v2]: touched a neighbour" in text
    assert "- engine tests, 3 failed: `KeyError: 'no'` (`test_x` 2, `test_y` 1)" in text


def test_the_page_keeps_what_it_says_of_releases_that_did_not_run_again() -> None:
    before = page.text({"0.9.2": RESULT, "0.10.2": RESULT})
    after = page.text({"0.10.2": {**RESULT, "plugins": {"lpkit-a": PLUGINS["lpkit-a"]}}}, before)
    assert "| 0.9.2 | 2.13.0 | 2 of 2 pass" in after and "| 0.10.2 | 2.13.0 | 1 of 1 pass" in after
    assert "## 0.9.2: what did not pass" in after and "## 0.10.2: what did not pass" not in after
    assert page.text({}, after) == after


ELSEWHERE = {"passed": 3, "failed": {}, "problems": [], "revision": "def5678", "date": "2026-11-23"}
NEVER_ACTIVE = {"verdict": "error", "runners": {"v1": [2, 2]}, "problems": ["never active"]}
ONLY_V1 = {"verdict": "pass", "runners": {"v1": [5, 5]}, "problems": []}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tests": ELSEWHERE}, "| 3 passed; at `def5678`, 2026-11-23 | `abc1234` |"),
        ({"plugins": {**PLUGINS, "lpkit-c": NEVER_ACTIVE}}, "| 2 of 3 pass, 10 checks |"),
        ({"plugins": {"lpkit-a": ONLY_V1}}, "| 1 of 1 pass, 5 checks | no runner for plugins |"),
    ],
    ids=["tests of another revision than the plugins", "a plugin that could not be judged", "a release without v2"],
)
def test_a_row_of_the_page_says_what_is_special(more: dict[str, Any], said: str) -> None:
    assert said in page.text({"0.27.1": {**RESULT, **more}})


def test_failures_and_errors_of_tests_are_counted_by_reason_and_file() -> None:
    assert trials.tests_of(REPORT) == {
        "passed": 1,
        "skipped": 1,
        "failed": {"KeyError: 'no'": {"test_loading": 1, "test_online": 1}, "assert 1 == 2": {"test_loading": 1}},
        "problems": [],
    }


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("assert (2, 'no') == (0, '')\n  Use -v to get more diff", "assert (2, 'no') == (0, '')"),
        ('failed on setup with "process.RemoteError: TypeError: missing a"', "TypeError: missing a"),
        (
            "RemoteError: ValidationError: 1 error\n  Value error, not yet `a` [type=value_error, 0]\n    For further",
            "not yet 'a'",
        ),
        ("AssertionError: the server ended:\n(1) INFO\n(1) ModuleNotFoundError: none", "ModuleNotFoundError: none"),
        ("ValueError: <A object at 0x7f2541141970> is bad", "ValueError: <A object> is bad"),
        ("AssertionError: Traceback (most recent call last):\n  File 'a', line 1\nAssertionError", "AssertionError"),
        ("subprocess.TimeoutExpired: Command 'a' timed out", "TimeoutExpired: Command 'a' timed out"),
        ("", "it does not say why"),
        ("KeyError: " + "x" * 300, "KeyError: " + "x" * 150),
    ],
)
def test_a_reason_is_the_last_exception_without_what_varies(message: str, reason: str) -> None:
    assert trials.reason(message) == reason


def test_tests_that_leave_no_report_have_not_passed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trials.subprocess, "run", lambda *_, **__: None)
    stopped = {"passed": 0, "skipped": 0, "failed": {}, "problems": ["no report"]}
    assert trials.try_tests(Environment("0.30.0", tmp_path)) == stopped


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


def test_a_stopped_run_goes_on_where_it_was_and_a_release_that_does_not_install_is_reported(
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
    releases = ["--only", "0.32.0", "0.18.0"]
    arguments = ["certify", "--work", str(tmp_path), "--page", str(tmp_path / "releases.md"), *releases]
    monkeypatch.setattr(command.sys, "argv", arguments)
    with pytest.raises(KeyboardInterrupt):
        command.main()
    assert command.main() == 1, "one release was not installed"
    assert "0.18.0\n  not installed: no such release" in capsys.readouterr().out
    plugins = [folder.name for folder in plugins_here()]
    assert tried == [*plugins[:2], plugins[2], *plugins[2:]], "each once, and the one that was interrupted again"
    kept = json.loads((tmp_path / "results.json").read_text())
    assert list(kept["0.32.0"]["plugins"]) == plugins


@pytest.mark.parametrize(
    ("verdict", "failed", "code"), [("pass", {}, 0), ("fail", {}, 1), ("pass", {"why": {"f": 1}}, 1)]
)
def test_a_run_in_which_something_failed_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: str, failed: dict[str, object], code: int
) -> None:
    tests = {"passed": 1, "skipped": 0, "failed": failed, "problems": []}
    monkeypatch.setattr(Environment, "prepare", lambda *_: None)
    monkeypatch.setattr(
        command, "try_plugin", lambda *_: {"verdict": verdict, "runners": {"v1": [5, 5]}, "problems": []}
    )
    monkeypatch.setattr(command, "try_tests", lambda _: tests)
    page_file = str(tmp_path / "releases.md")
    arguments = ["certify", "--work", str(tmp_path), "--page", page_file, "--only", "0.32.0", "--tests"]
    monkeypatch.setattr(command.sys, "argv", arguments)
    assert command.main() == code


def test_the_usual_releases_take_the_torch_of_this_repository() -> None:
    pinned = (Path(__file__).parents[3] / "Makefile").read_text()
    assert {TORCH[release] for release in USUAL} == {pinned.partition("TORCH ?= torch==")[2].partition("\n")[0]}
