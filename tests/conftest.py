"""Fixtures and hooks shared by tests of several folders."""

from __future__ import annotations

import contextlib
import gc
import json
import linecache
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector of garbage from tests and modules, which stay: it took a third of the collection and a fifth
    of the tests' time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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


@pytest.fixture(scope="session")
def judging_here(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which targets are judged, shown and measured in this process.

    A child takes seconds, and tests/conformance/suite is about the child.
    """
    from lpkit.loading import LoadError, resolve_target
    from lpkit_conformance import run
    from lpkit_conformance.bench import run as bench
    from lpkit_conformance.checks.catalogue import inactive
    from lpkit_conformance.processes.child import resolve
    from lpkit_conformance.results import TargetResult
    from lpkit_conformance.run import failures
    from lpkit_conformance.show import run as show
    from lpkit_conformance.suite import ahead
    from lpkit_conformance.suite.in_process import Session
    from lpkit_conformance.suite.load_failures import load_failure
    from lpkit_conformance.vllm_api.choose import prepared

    home = str(tmp_path_factory.getbasetemp().parent)

    @contextlib.contextmanager
    def importing(path: Sequence[str]) -> Iterator[str]:
        """Forget the modules of a test's folder afterwards: the test may change them."""
        with prepared() as judged_with, pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.path", [*path, *sys.path])
            yield judged_with
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(home):
                del sys.modules[name]
        linecache.checkcache()

    def check_target(target: str, plan: run.Plan, path: list[str], *_: object, **__: object) -> TargetResult:
        with importing(path) as judged_with:
            try:
                session = Session(target, resolve_target(target), plan)
            except LoadError as error:
                failure = load_failure(target, error, True)
                found = (failure.result(),) if failure.broken else ()
                return TargetResult(target, (), found, error="" if found else str(failure))
            results = tuple(session.results())
            error = session.hint() if inactive(results) else ""
            return TargetResult(target, session.hosts, results, "", judged_with, error, tuple(session.notes))

    def run_child(entry: str, job: dict[str, Any], take: Callable[[Any], None], *_: object) -> None:
        def tell(event: str, **fields: Any) -> None:
            take({"event": event, **json.loads(json.dumps(fields))})

        with importing(()):
            resolve(entry)(SimpleNamespace(job=lambda: {"lost": "", **job}, tell=tell))

    @contextlib.contextmanager
    def here() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module in (failures, run):
                patch.setattr(module, "check_target", check_target)
            for module in (show, bench):
                patch.setattr(module, "run_child", run_child)
            patch.setattr(ahead, "start_ahead", contextlib.nullcontext)
            yield

    return here


@pytest.fixture
def in_process(judging_here: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Judge, show and measure targets in this process, for a test that is not about the child."""
    with judging_here():
        yield


@pytest.fixture
def lpkit(tmp_path: Path) -> Lpkit:
    """``lpkit("new", "my-proc", cwd=..., env=...)`` in a process of its own; ``cwd`` is ``tmp_path`` if not given."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return command.lpkit(*arguments, cwd=cwd or tmp_path, **(env or {}))

    return run
