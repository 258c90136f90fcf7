"""`lpkit watch` shows the numbers and violations of a server's run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from lpkit_cli.app import app
from lpkit_conformance.watch import run_directory
from lpkit_conformance.watch.numbers import ProcessCounts, ProcessorCounts, Violation
from lpkit_conformance.watch.run_directory import write_numbers
from typer.testing import CliRunner


def run(folder: Path, **violations: int) -> Path:
    tally = ProcessCounts()
    tally.runner, tally.steps = "v1", 7
    tally.processors["a:B"] = ProcessorCounts(rows=3, violations=violations)
    for kind in violations:
        tally.keep(
            Violation("a:B", kind, "no logit becomes NaN", "v1", 4, {"x": "<int>"}, "1.5", "nan", trace="f.jsonl")
        )
    write_numbers(folder, tally.as_json())
    return folder


def shown(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["watch", *arguments])


def test_a_run_without_violations_is_exit_code_0(tmp_path: Path) -> None:
    done = shown(str(run(tmp_path)))
    assert done.exit_code == 0
    assert "on V1: 7 steps, 0 sampled, 3 rows compared, 0.00 % of step time; at this rate, " in done.output


def test_violations_are_reported_with_their_traces_and_are_exit_code_1(tmp_path: Path) -> None:
    done = shown(str(run(tmp_path, nan=2)))
    assert done.exit_code == 1
    assert "violations: 2 x nan by a:B" in done.output
    assert "arguments: {'x': '<int>'}; evidence: f.jsonl" in done.output


def test_without_a_folder_it_is_the_latest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert shown().exit_code == 2
    for name in ("run-20260101-000000-1", "run-20260102-000000-1"):
        (run_directory.home("") / name).mkdir(parents=True)
        run(run_directory.home("") / name)
    assert "run-20260102-000000-1" in shown().output


def test_a_folder_without_numbers_is_exit_code_2_and_one_line(tmp_path: Path) -> None:
    done = shown(str(tmp_path))
    assert done.exit_code == 2
    assert f"no process was watched in {tmp_path}" in done.output
