"""Engine processes pass their numbers to the API server in files, and Prometheus can read them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.watch import run_directory
from lpkit_conformance.watch.numbers import (
    SEEN,
    CallTimes,
    ProcessCounts,
    ProcessorCounts,
    Violation,
    prometheus,
    rules,
    summary,
    violations,
)
from lpkit_conformance.watch.reporter import Reporter
from lpkit_conformance.watch.run_directory import RUN, latest, of_this_run, read_numbers, write_numbers
from lpkit_conformance.watch.settings import WatchSettings


def numbers() -> dict[str, Any]:
    tally = ProcessCounts()
    tally.runner, tally.steps = "v1", 7
    calls = CallTimes()
    calls.add(0.5)
    counts = {"ban": {"": [2, 40], "last/0": [5, 7]}}
    tally.processors['a:"B"'] = ProcessorCounts({"apply": calls}, 3, {"nan": 2}, rules=counts)
    tally.keep(Violation('a:"B"', "nan", "no logit becomes NaN", "v1", 4, {"x": "<int>"}, "1.5", "nan", time=5.0))
    return tally.as_json()


def test_every_line_is_of_the_exposition_format_and_every_metric_is_declared() -> None:
    text = prometheus({"11": numbers(), "12": numbers()})
    sample = re.compile(r'(lpkit_(?:watch|rules)_\w+)\{(\w+="(\\.|[^"\\])*",?)+\} \d+(\.\d+)?(e-?\d+)?')
    declared = set(re.findall(r"# TYPE (\S+) (?:counter|gauge)", text))
    for line in text.splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line
    assert declared == {match[1] for line in text.splitlines() if (match := sample.fullmatch(line))}
    assert 'lpkit_watch_violations_total{process="12",processor="a:\\"B\\"",kind="nan"} 2' in text
    assert 'lpkit_rules_rows_total{process="11",processor="a:\\"B\\"",rule="ban",step="last/0"} 7' in text


def test_the_counts_of_rules_are_listed_by_rule_and_operators_step() -> None:
    first, second = rules({"11": numbers()})
    assert (first["rule"], first["step"], first["requests"], first["rows"]) == ("ban", "", 2, 40)
    assert (second["step"], second["requests"], second["rows"]) == ("last/0", 5, 7)


def test_the_summary_states_when_a_rare_defect_is_met() -> None:
    counted = numbers() | {"step_seconds": 30.0}
    counted["processors"]['a:"B"']["rows"] = 100
    assert "at this rate, a defect in 1 % of the rows is met within 90 s of steps" in summary(counted)
    assert pytest.approx(0.95, abs=0.01) == 1 - 0.99**SEEN
    counted["processors"]['a:"B"']["rows"] = 0
    assert "at this rate, nothing is met" in summary(counted)


def test_a_stall_of_sampling_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    counts = ProcessCounts()
    reporter = Reporter(WatchSettings(interval=0.1), counts, None)
    for seconds in (100.0, 500.0, 701.0, 900.0):
        counts.step_seconds = seconds
        reporter.tick()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "no step was sampled in 600 s of steps" in line
    counts.sampled = 1
    for seconds in (1000.0, 1700.0):
        counts.step_seconds = seconds
        reporter.tick()
    assert len(caplog.records) == 2


def test_violations_of_all_processes_are_added_up() -> None:
    page = violations({"11": numbers(), "12": numbers()})
    assert page["counts"] == {'a:"B"': {"nan": 4}}
    assert [(violation["process"], violation["arguments"]) for violation in page["violations"]] == [
        ("11", {"x": "<int>"}),
        ("12", {"x": "<int>"}),
    ]


def test_a_run_has_one_folder_which_later_processes_inherit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN, "")
    folder = of_this_run(str(tmp_path))
    assert os.environ[RUN] == str(folder)
    assert of_this_run("elsewhere") == folder == latest(str(tmp_path))


def test_old_runs_are_removed_unless_their_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "_alive", lambda process: process == "3")
    for number in range(20):
        (tmp_path / f"run-20250101-0000{number:02}-{number}").mkdir()
    monkeypatch.setenv(RUN, "")
    of_this_run(str(tmp_path))
    kept = sorted(path.name.rpartition("-")[2] for path in tmp_path.iterdir())
    assert len(kept) == run_directory.KEPT_RUNS + 1
    assert "3" in kept


def test_numbers_are_read_as_they_were_written_and_broken_files_are_left_out(tmp_path: Path) -> None:
    write_numbers(tmp_path, numbers())
    (tmp_path / "process-9.json").write_text("{", encoding="utf-8")
    assert read_numbers(tmp_path) == {str(os.getpid()): numbers()}
