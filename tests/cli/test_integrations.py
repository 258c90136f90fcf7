"""The action for GitHub and the hook for pre-commit: they call the command with options that it has."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import SUSPECTS
from lpkit_cli.app import app
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
DEFAULTS = {name: str(item["default"]) for name, item in ACTION["inputs"].items()}


def test_every_input_is_used_explained_and_known() -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(DEFAULTS)
    assert all(item["description"] for item in ACTION["inputs"].values())
    assert ACTION["runs"]["using"] == "composite"


def test_no_input_is_pasted_into_a_script() -> None:
    for step in STEPS:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def ran(step: dict[str, Any], folder: Path, code: int = 0, **inputs: str) -> tuple[int, list[list[str]], str]:
    """Run a step with programs that only note their arguments: exit code, calls, outputs."""
    if shutil.which("bash") is None:
        pytest.skip("NOT RUN: there is no bash here")
    for name in ("lpkit", "python"):
        tool = folder / name
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "<end>" >> "{folder}/calls"\nexit {code}\n', encoding="utf-8")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    values = {**DEFAULTS, **{name.replace("_", "-"): value for name, value in inputs.items()}}
    env = {name: values[re.search(r"inputs\.([\w-]+)", text)[1]] for name, text in step.get("env", {}).items()}
    output = folder / "output"
    env |= {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_ACTION_PATH": "/action",
    }
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], cwd=folder, env=env, check=False)
    calls = (folder / "calls").read_text(encoding="utf-8").split("<end>\n")
    said = output.read_text(encoding="utf-8") if output.exists() else ""
    return done.returncode, [call.splitlines() for call in calls if call], said


def test_the_action_checks_the_project_and_writes_its_reports(tmp_path) -> None:
    code, (call,), said = ran(STEPS[1], tmp_path)
    reports = ["--html", "lpkit-report.html", "--sarif", "lpkit.sarif"]
    assert call == ["check", "--format", "github", *reports, "--"]
    assert (code, said) == (0, "exit-code=0\n")


def test_the_action_passes_on_what_it_is_given_and_runs_none_of_it(tmp_path) -> None:
    case = '{"extra_args": {"bias": 2.5, "text": "$(touch evil) `touch evil`; touch evil"}}'
    inputs = {"targets": "a.py:B\nmod:C\n", "case": f"{case}\n", "arguments": "--host\nv2", "html": "", "sarif": ""}
    code, (call,), _ = ran(STEPS[1], tmp_path, **inputs)
    assert call == ["check", "--format", "github", "--case", case, "--host", "v2", "--", "a.py:B", "mod:C"]
    assert code == 0 and not (tmp_path / "evil").exists()


def test_the_action_fails_as_the_check_does_and_says_how(tmp_path) -> None:
    code, _, said = ran(STEPS[1], tmp_path, code=2)
    assert (code, said) == (2, "exit-code=2\n")


def test_the_action_installs_lpkit_from_where_the_action_lies(tmp_path) -> None:
    _, (call,), _ = ran(STEPS[0], tmp_path)
    assert call == ["-m", "pip", "install", *DEFAULTS["pip-options"].split(), "/action[check]"]


def test_the_hook_calls_the_command_with_options_that_it_has() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *arguments = shlex.split(hook["entry"])
    assert (program, hook["language"], hook["pass_filenames"]) == ("lpkit", "system", False)
    done = CliRunner().invoke(app, [*arguments, "--list-checks"])
    assert done.exit_code == 0, done.output


def real_environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a runner, or a machine, with lpkit installed; ``folder`` gets the plugins."""
    shutil.copy(SUSPECTS / "bias.py", folder)
    bin_folder = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", **variables}


def test_the_action_gives_a_real_plugin_its_verdict_and_reports(tmp_path: Path) -> None:
    case, plugin = '{"extra_args": {"bias": 2.5}}', "bias.py:ForgetsToReplace"
    values = {**DEFAULTS, "targets": plugin, "case": case, "arguments": "--select\nLP202"}
    own = {name: values[re.search(r"inputs\.([\w-]+)", text)[1]] for name, text in STEPS[1]["env"].items()}
    output, summary = tmp_path / "output", tmp_path / "summary"
    files = {"GITHUB_ACTIONS": "true", "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    env = real_environment(tmp_path, **own, **files)
    command = ["bash", "-eo", "pipefail", "-c", STEPS[1]["run"]]
    done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
    assert (done.returncode, output.read_text(encoding="utf-8")) == (1, "exit-code=1\n"), done.stderr
    assert "::error" in done.stdout
    (run,) = json.loads((tmp_path / values["sarif"]).read_text(encoding="utf-8"))["runs"]
    assert [result["ruleId"] for result in run["results"] if result["level"] == "error"] == ["LP202"]
    assert (tmp_path / values["html"]).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert plugin in summary.read_text(encoding="utf-8")


def test_the_hook_fails_for_a_defective_plugin(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (tmp_path / "pyproject.toml").write_text(
        '[project.entry-points."vllm.logits_processors"]\nmine = "bias:ForgetsToReplace"\n'
        "[tool.lpkit]\ncases = [{extra_args = {bias = 2.5}}]\n",
        encoding="utf-8",
    )
    env = real_environment(tmp_path)
    done = subprocess.run(
        shlex.split(hook["entry"]), cwd=tmp_path, env=env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^FAIL\w* +LP202", done.stdout, re.M)
