"""Checks that failed last are remembered until they pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from lpkit_conformance.results import CheckResult, Status, TargetResult
from lpkit_conformance.settings import last_failures


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(target: str, **statuses: Status) -> TargetResult:
    return TargetResult(
        target, ("v1",), tuple(CheckResult(code, "x", "v1", status) for code, status in statuses.items())
    )


def test_failures_are_kept_by_target_until_they_pass() -> None:
    last_failures.remember([ran("a", LP202="failed", LP203="passed"), ran("b", LP205="unexpected_pass")])
    assert last_failures.load() == {"a": ["LP202"], "b": ["LP205"]}
    last_failures.remember([ran("a", LP202="blocked", LP203="failed")])
    assert last_failures.load()["a"] == ["LP202", "LP203"]
    last_failures.remember([ran("a", LP202="passed", LP203="passed")])
    assert last_failures.load() == {"b": ["LP205"]}


def test_nothing_is_written_when_nothing_fails(tmp_path) -> None:
    last_failures.remember([ran("a", LP202="passed")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', "\x00"])
def test_a_file_that_is_something_else_is_no_memory(text: str) -> None:
    last_failures.FILE.parent.mkdir()
    last_failures.FILE.write_text(text, encoding="utf-8")
    assert last_failures.load() == {}
    last_failures.remember([ran("a", LP202="failed")])
    assert last_failures.load() == {"a": ["LP202"]}


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path) -> None:
    (tmp_path / ".lpkit").write_text("a file", encoding="utf-8")
    last_failures.remember([ran("a", LP202="failed")])
    assert last_failures.load() == {}
