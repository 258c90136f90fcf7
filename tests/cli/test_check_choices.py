"""Choice of checks: lists with commas, ``-k``, ``--list-checks``, ``--quick`` with the last failures, ``--watch``."""

from __future__ import annotations

import contextlib
import os
from typing import get_type_hints

import pytest
import typer
from command import SUSPECTS, write_suspect
from lpkit_cli import watching
from lpkit_cli.app import app
from lpkit_cli.commands import check
from lpkit_conformance import run
from lpkit_conformance.checks.catalogue import all_checks, chosen, dependents
from lpkit_conformance.errors import UsageError
from lpkit_conformance.results import Report, TargetResult
from lpkit_conformance.settings import last_failures
from typer.testing import CliRunner

CASE = '{"extra_args": {"bias": 2.5}}'


def lpkit(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["check", *arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.output


def listed(*arguments: str) -> list[str]:
    return [line.split()[0] for line in lpkit("--list-checks", *arguments).splitlines()]


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (("--select", "LP205, LP206", "--select", "LP202"), ["LP202", "LP205", "LP206"]),
        (("--select", "LP205,LP206", "--ignore", "LP201,LP206"), ["LP205"]),
        (("-k", "swap"), ["LP205", "LP206"]),
        (("-k", "swap", "--ignore", "LP206"), ["LP205"]),
        (("--select", "LP001,LP402,LP802", "--host", "v2"), ["LP001", "LP802"]),
        (("--quick",), [check.code for check in all_checks() if check.quick]),
        (("--quick", "--select", "LP206"), ["LP206"]),
    ],
)
def test_what_would_run_is_listed(arguments: tuple[str, ...], codes: list[str]) -> None:
    assert listed(*arguments) == codes


def test_all_checks_are_listed_with_their_rules() -> None:
    lines = lpkit("--list-checks").splitlines()
    assert len(lines) == len({line.split()[0] for line in lines}) > 60
    assert "LP205  swap                       A swap exchanges the states of both rows" in lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "v1,v3"), "there is no host 'v3'"),
        (("--select", "LP202,LP999"), "there is no check LP999"),
        (("--select", "LP2O2"), "there is no check LP2O2; did you mean 'LP2"),
        (("--select", "replace-on-ad"), "there is no check replace-on-ad; did you mean 'replace-on-add'?"),
        (("-k", "swpa"), "no check is left to run with these options; did you mean 'swap'?"),
        (("-k", "swap and"), "a word or a bracket is missing"),
        (("--select", "LP202", "--ignore", "LP2"), "no check is left to run"),
        (("--select", "LP402", "--host", "v2"), "no check is left to run"),
    ],
)
def test_what_does_not_exist_is_answered_with_the_nearest(arguments: tuple[str, ...], said: str) -> None:
    assert said in lpkit("x:Y", *arguments, code=2)


def test_a_shell_completes_codes_also_the_last_of_a_list() -> None:
    words = {"_LPKIT_COMPLETE": "complete_bash", "COMP_WORDS": "lpkit check --select LP202,LP20", "COMP_CWORD": "3"}
    done = CliRunner().invoke(app, [], env=words, prog_name="lpkit")
    found = done.output.split()
    assert "LP202,LP205" in found and "LP202,LP301" not in found


def plan(**options: object) -> run.Plan:
    return run._narrowed(run.plan_for(run.Options(**options)), run.Options(**options), ["LP210", "LP205"])


def test_a_quick_run_is_of_few_checks_and_of_those_that_failed_which_come_first() -> None:
    quick = plan(quick=True, cases=(CASE, CASE))
    codes = [check.code for check in chosen(quick)]
    assert set(codes) == {"LP210", *(check.code for check in all_checks() if check.quick)}
    failed = {"LP210", "LP205"}
    first = codes[: max(map(codes.index, failed)) + 1]
    assert all(code in failed or failed & set(dependents(code)) for code in first)
    assert len(quick.cases) == 2, "some quick checks judge each"


def test_the_help_of_quick_names_the_checks_that_take_each_case() -> None:
    option = get_type_hints(check.check, include_extras=True)["quick"].__metadata__[0]
    each = ", ".join(item.code for item in all_checks() if item.quick == "each")
    assert f"with the first case, and {each} with each case" in option.help


def test_a_quick_run_of_selected_checks_is_of_these_alone() -> None:
    assert [check.code for check in chosen(plan(quick=True, select=("LP206",)))] == ["LP206"]
    assert [check.code for check in chosen(plan(quick=True, expression="swap"))] == ["LP205", "LP206"]


def test_an_expression_alone_keeps_what_the_checks_require() -> None:
    assert {"LP206", "LP201"} < {check.code for check in chosen(plan(expression="swap-chain"))}


def test_a_failure_is_run_again_first_until_it_passes(in_process, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suspect(tmp_path / "plugin.py", "ForgetsToReplace")
    text = lpkit("plugin.py:Plugin", "--case", CASE, "--quick", "--host", "v1", code=1)
    assert "FAIL LP202[v1]" in text
    assert "LP202" in last_failures.load()["plugin.py:Plugin"]
    write_suspect(tmp_path / "plugin.py", "Good")
    lpkit("plugin.py:Plugin", "--case", CASE, "--quick", "--host", "v1")
    assert last_failures.load() == {}


# -- watching ----------------------------------------------------------------------------------------------------


def test_a_change_a_new_file_and_a_lost_one_are_seen_others_are_not(tmp_path) -> None:
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    plugin, gone = tmp_path / "pkg" / "plugin.py", tmp_path / "gone.py"
    plugin.write_text("a", encoding="utf-8")
    gone.write_text("a", encoding="utf-8")
    before = watching.times([tmp_path])
    (tmp_path / "out.json").write_text("{}", encoding="utf-8")
    (tmp_path / "pkg" / "__pycache__" / "x.py").write_text("", encoding="utf-8")
    assert watching.times([tmp_path]) == before
    os.utime(plugin, (1, 1))
    gone.unlink()
    (tmp_path / "new.py").write_text("", encoding="utf-8")
    assert [path.name for path in watching.wait([tmp_path], before)] == ["gone.py", "new.py", "plugin.py"]


def test_the_files_of_a_target_are_watched_without_importing_it(tmp_path, monkeypatch) -> None:
    package = tmp_path / "elsewhere" / "some_plugin"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit", encoding="utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.chdir(tmp_path)
    assert watching.roots(["some_plugin.module:X"]) == [tmp_path, package]
    assert watching.roots([f"{SUSPECTS / 'bias.py'}:Good", "an-entry-point", "no_such:X"]) == [tmp_path, SUSPECTS]


def test_watching_runs_again_after_a_change_and_after_a_mistake_until_interrupted(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = iter([0, UsageError("a mistake"), 1])
    changes = iter([[tmp_path / "a.py"], [tmp_path / "b.py"], KeyboardInterrupt])

    def following(source):
        found = next(source)
        if isinstance(found, Exception) or found is KeyboardInterrupt:
            raise found
        return found

    monkeypatch.setattr(check.watching, "wait", lambda *_: following(changes))
    started = []

    def ahead():
        started.append(True)
        return contextlib.nullcontext(contextlib.nullcontext())

    monkeypatch.setattr("lpkit_conformance.suite.ahead.start_ahead", ahead)
    context = typer.Context(typer.main.get_command(app))
    context.obj = context.with_resource(ahead())
    assert check._again_and_again(lambda _: following(outcomes), [], context) == 1
    assert len(started) == 4  # one before, and one while it waits for each change
    said = capsys.readouterr().err
    assert "a.py changed" in said and "a mistake" in said and said.count("waiting") == 3


# -- what is shown -----------------------------------------------------------------------------------------------


def test_github_actions_get_annotations_without_being_asked(monkeypatch, capsys) -> None:
    report = Report((TargetResult("mine", (), (), error="it is gone"),))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    check._show(report, None, {}, False)
    assert "::error title=lpkit::mine: it is gone" in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "")
    check._show(report, None, {}, False)
    assert "::error" not in capsys.readouterr().out
