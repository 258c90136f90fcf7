"""``lpkit check``: targets, settings, reports and exit codes, as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from command import SOURCES, SUSPECTS
from lpkit_cli.app import app
from lpkit_cli.commands.check import _show
from lpkit_conformance.results import Report, TargetResult
from typer.testing import CliRunner

CASE = '{"extra_args": {"bias": 2.5}}'
SELECT = ("--select", "LP202")


def refused(*arguments: str) -> str:
    """Return the message of a run that cannot start; in this process, because no plugin code runs."""
    done = CliRunner().invoke(app, ["check", *arguments])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the suspects as its modules."""
    found = tmp_path_factory.mktemp("project")
    for file in SUSPECTS.glob("*.py"):
        (found / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (found / "pyproject.toml").write_text(
        '[project.entry-points."vllm.logits_processors"]\nown = "bias:Good"\nforgetful = "bias:ForgetsToReplace"\n'
        "[tool.lpkit]\ncases = [{extra_args = {bias = 2.5}}]\n",
        encoding="utf-8",
    )
    return found


@pytest.mark.parametrize(("name", "read"), [("json", json.loads), ("junit", ET.fromstring)])
def test_a_report_on_standard_output_is_alone_there(name: str, read, capsys) -> None:
    _show(Report((TargetResult("x", (), ()),)), None, {name: Path("-")}, verbose=False)
    read(capsys.readouterr().out.encode())


# -- projects ----------------------------------------------------------------------------------------------------


def test_without_a_target_the_projects_entry_points_run_and_announced_failures_are_excused(
    folder, tmp_path, in_process, monkeypatch
) -> None:
    for file in (*SUSPECTS.glob("bias.py"), folder / "pyproject.toml"):
        (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('[tool.lpkit.expected_failures]\nLP202 = "its state is to be rewritten"\n')
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["check", *SELECT, "--json", "-"])
    found = {target["target"]: target for target in json.loads(done.stdout)["targets"]}
    assert done.exit_code == 1  # strict: the good one was announced too
    statuses = {name: [c["status"] for c in found[name]["checks"] if c["code"] == "LP202"] for name in found}
    assert statuses == {"own": ["unexpected_pass"], "forgetful": ["expected"]}
    assert (found["own"]["verdict"], found["forgetful"]["verdict"]) == ("fail", "pass")


def test_a_case_that_never_acts_is_exit_code_2_with_a_suggestion(folder, in_process, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["check", "bias.py:Good", "--case", '{"extra_args": {"bais": 1}}', *SELECT])
    assert done.exit_code == 2
    assert "it looked at extra_args 'bias', the cases give 'bais' ('bais': did you mean 'bias'?)" in done.stdout
    assert """--case '{"extra_args": {"bias": 1}}'""" in done.stdout
    assert "ERROR  bias.py:Good" in done.stdout


# -- what cannot start -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (["x:Y", "--case", "{"], "", "case is not JSON"),
        ([], "", "nothing to check: name a target"),
        (["x:Y"], "[tool.lpkit", "is not valid TOML"),
        (["x:Y"], "[tool.lpkit.expected_failures]\nLP999 = 'x'", "there is no check LP999"),
    ],
)
def test_a_wrong_setting_is_exit_code_2_and_one_line(tmp_path, monkeypatch, arguments, settings: str, message) -> None:
    (tmp_path / "pyproject.toml").write_text(settings, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shown = refused(*arguments)
    assert message in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupt_ends_the_run_and_the_plugin(folder, tmp_path) -> None:
    program = (
        "import signal\nfrom lpkit_cli.app import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nmain()"  # a shell's background job ignores it
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, "check", "hostile.py:Hangs", "--case", CASE, "--select", "LP109"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCES)), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any("LP109" in file.read_text() for file in tmp_path.glob("lpkit-*/events.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in output + errors
    assert list(tmp_path.glob("lpkit-*")) == []
