"""Fixtures and hooks shared by tests of several folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import command
import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
FEW_CHECKS = (
    "LP201",
    "LP202",
    "LP204",
    "LP211",
    "LP212",
    "LP303",
    "LP401",
    "LP501",
    "LP505",
    "LP703",
    "LP804",
)
"""Of each family some that are over in a moment."""

Lpkit = Callable[..., subprocess.CompletedProcess[str]]
Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """``once(name, fill)``: a folder, filled by ``fill(folder)`` once in a run, by whichever worker needs it first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def sources() -> str:
    """The PYTHONPATH of a process that runs this checkout."""
    return os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", "cli"))


@pytest.fixture(scope="session")
def few_checks() -> tuple[str, ...]:
    """For tests that are about something else than the suite: another test of the same style runs all of it."""
    return FEW_CHECKS


@pytest.fixture(scope="session")
def selected() -> list[str]:
    """The same as options of ``lpkit check``."""
    return [argument for code in FEW_CHECKS for argument in ("--select", code)]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge targets in this process: a child takes seconds, and tests/conformance/suite is about the child.

    A target that changes during the test needs the child: a module is imported once.
    """
    from lpkit.loading import LoadError, resolve_target
    from lpkit_conformance import failures, run
    from lpkit_conformance.checks.catalogue import inactive
    from lpkit_conformance.results import TargetResult
    from lpkit_conformance.suite import ahead
    from lpkit_conformance.suite.in_process import Session
    from lpkit_conformance.vllm_api.choose import prepared

    def check_target(target: str, plan: run.Plan, path: list[str], *_: object, **__: object) -> TargetResult:
        with prepared() as judged_with, pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.path", [*path, *sys.path])
            try:
                session = Session(target, resolve_target(target), plan)
            except LoadError as error:
                return TargetResult(target, (), (), error=str(error))
            results = tuple(session.results())
            error = session.hint() if inactive(results) else ""
            return TargetResult(target, session.hosts, results, "", judged_with, error, tuple(session.notes))

    monkeypatch.setattr(failures, "check_target", check_target)
    monkeypatch.setattr(run, "check_target", check_target)
    monkeypatch.setattr(ahead, "start_ahead", contextlib.nullcontext)


@pytest.fixture
def lpkit(tmp_path: Path) -> Lpkit:
    """``lpkit("new", "my-proc", cwd=..., env=...)`` in a process of its own; ``cwd`` is ``tmp_path`` if not given."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return command.lpkit(*arguments, cwd=cwd or tmp_path, **(env or {}))

    return run
