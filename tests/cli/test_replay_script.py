"""``lpkit replay --script``: a test for pytest that fails on the defect and passes once it is repaired."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from command import SUSPECTS, write_suspect
from lpkit_cli.app import app
from lpkit_conformance.report.script import script
from lpkit_conformance.results import CheckResult, Finding, Report, TargetResult
from lpkit_conformance.run import failures
from lpkit_conformance.testing import compute_check
from typer.testing import CliRunner

CASE = {"extra_args": {"bias": 2.5}}


@pytest.fixture
def saved(tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A failure of ``plugin.py`` in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_suspect(tmp_path / "plugin.py", "ForgetsToReplace")
    result = compute_check("LP202", f"{SUSPECTS / 'bias.py'}:ForgetsToReplace", case=CASE)
    report = failures.save(Report((TargetResult("plugin.py:Plugin", ("v1",), (result,)),)), failures.FOLDER)
    finding = report.targets[0].checks[0].finding
    assert finding is not None
    return Path(finding.saved)


def pytest_of(file: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(file.parent), str(file)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False)


@pytest.mark.broad
def test_the_script_fails_on_the_defect_from_any_folder_and_passes_once_it_is_repaired(saved, tmp_path) -> None:
    (tmp_path / "tests").mkdir()
    done = CliRunner().invoke(app, ["replay", str(saved), "--script", "tests/test_it.py"])
    assert done.exit_code == 1, done.output
    file = tmp_path / "tests" / "test_it.py"

    failing = pytest_of(file, tmp_path.parent)
    assert failing.returncode == 1, failing.stdout
    assert "request c got different logits in the batch than alone" in failing.stdout

    write_suspect(tmp_path / "plugin.py", "Good")
    passing = pytest_of(file, tmp_path.parent)
    assert passing.returncode == 0, passing.stdout


def test_the_script_reads_as_a_report_and_holds_the_operations(saved, tmp_path) -> None:
    failure = failures.load(saved)
    finding = Finding('it said """ and \\', expected="1", got="2", operations=("a arrives", "step"))
    text = script(
        failure, CheckResult("LP202", "replace-on-add", "v1", "failed", "", finding), "my.mod:X", [], tmp_path
    )
    words = ast.get_docstring(ast.parse(text))
    assert words is not None
    assert words.startswith("LP202 on V1: An Add at an occupied row replaces the request there.")
    assert "it said ''' and \\" in words and "got         2" in words
    assert 'Arrive("a", variant=0),' in text and 'case={"extra_args": {"bias": 2.5}},' in text
    assert 'TARGET = "my.mod:X"' in text


def test_a_script_imports_from_the_folders_of_its_project(saved, tmp_path) -> None:
    text = script(failures.load(saved), None, "my.mod:X", [str(tmp_path / "src")], tmp_path / "tests")
    assert 'sys.path.insert(0, str(Path(__file__).parent / "../src"))' in text
    assert "It passed when this file was written." in text
    compile(text, "test_it.py", "exec")


def test_a_script_of_a_recorded_trace_names_it(tmp_path) -> None:
    found = {"schema": failures.SCHEMA, "target": "x:Y", "check": "LP220", "host": "v1", "case": CASE, "seed": 3}
    trace = failures.traces.names("v1")[0]
    failure = failures.from_json({**found, "vocab_size": 512, "max_num_seqs": 8, "trace": trace, "pattern": "all"})
    text = script(failure, None, "x:Y", [], tmp_path)
    assert f'trace=("{trace}", "all"),' in text and "program" not in text
    compile(text, "test_it.py", "exec")


def test_a_script_that_cannot_be_written_is_one_line(saved) -> None:
    done = CliRunner().invoke(app, ["replay", str(saved), "--script", "no/such/folder/test_it.py"])
    assert done.exit_code == 2
    assert "cannot write no/such/folder/test_it.py" in done.stderr
