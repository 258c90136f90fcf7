"""Puts one mutant before the suite: in a forked child, over a copy of its package, stopping at the first failure."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CPU_SECONDS = 30
"""Processor time that one check may use; the slowest takes 4 s."""

MEMORY = 10 << 30
PACKAGES = ("lpkit", "lpkit_conformance", "zoo")
CORRECT = ("v1_correct", "v1_history_correct", "v2_correct", "portable_correct", "adapter_correct")
"""Modules of the zoo whose processors are mutated."""

LATER = ("LP220", "LP219", "LP208", "LP603", "LP808", "LP308")
"""The slow checks, tried when the others found nothing."""


@dataclass
class Outcome:
    """How a mutant fared.

    Attributes:
        status: ``failed``, ``raised`` (at import, or in the suite), ``stopped`` (time or memory), ``inactive`` (no
            case acts any more: exit 2), ``advice`` (only advice that the original does not get), ``survived``.
        by: the check and host, or what happened.
        probe: the processor that showed it.
        alone: digest of what each processor does to a request alone, for survivors.
        advice: checks of tier advice that found something, by processor.
    """

    status: str
    by: str = ""
    probe: str = ""
    message: str = ""
    alone: dict[str, str] = field(default_factory=dict)
    advice: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    depth: int = 0


class Overlay:
    """A copy of the packages, in which one module at a time is replaced.

    Args:
        root: the repository.
        folder: where to copy to; one per process.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "sdk" / "lpkit", folder / "lpkit", ignore=ignore)
        shutil.copytree(root / "conformance" / "lpkit_conformance", folder / "lpkit_conformance", ignore=ignore)
        (folder / "zoo").mkdir()
        (folder / "zoo" / "__init__.py").write_text("")
        for name in ("arguments", "registry", *CORRECT):
            shutil.copy(root / "tests" / "conformance" / "zoo" / f"{name}.py", folder / "zoo")
        shutil.copy(Path(__file__).with_name("probes.py"), folder)

    def copy_of(self, file: str) -> Path:
        """Where the copy of a file of the repository is."""
        parts = Path(file).parts
        return self.folder.joinpath(*parts[next(i for i, part in enumerate(parts) if part in PACKAGES) :])


def fork_and_judge(overlay: Overlay, file: str, source: str | None, probes: Sequence[str] | None, depth: int) -> int:
    """Start a child that judges ``source`` in place of ``file`` (None: the original); returns its process id.

    The child writes its :class:`Outcome` to ``outcome.json`` in the overlay's folder.
    """
    answer = overlay.folder / "outcome.json"
    answer.unlink(missing_ok=True)
    process = os.fork()
    if process:
        return process
    begun = time.perf_counter()
    try:
        quiet()
        sys.path[:] = [str(overlay.folder), *sys.path]
        if source is not None:
            replace(overlay.copy_of(file), source)
        outcome = judge(probes, depth)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome = Outcome("raised", f"{type(error).__name__}", message=f"{error} ({where.name})"[:200])
    outcome.seconds = round(time.perf_counter() - begun, 2)
    answer.write_text(json.dumps(asdict(outcome)))
    os._exit(0)


def collect(overlay: Overlay, status: int) -> Outcome:
    """The outcome of a child that has ended."""
    answer = overlay.folder / "outcome.json"
    if not answer.exists():
        return Outcome("stopped", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "exit")
    return Outcome(**json.loads(answer.read_text()))


def quiet() -> None:
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    logging.disable(logging.CRITICAL)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def replace(path: Path, source: str) -> None:
    """Bytecode is checked by time and size, which a mutant may share with the original: it has to go."""
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        cached.unlink()
    path.write_text(source, "utf-8")


def judge(probes: Sequence[str] | None, depth: int) -> Outcome:
    """The checks on every probe. ``depth`` 0: the quick ones; 1: the slow ones too; 2: LP604 too."""
    from lpkit_conformance.catalogue import inactive
    from lpkit_conformance.oracle import shrink
    from lpkit_conformance.settings.plan import Plan
    from lpkit_conformance.suite.in_process import Session

    registry = importlib.import_module("zoo.registry")
    for name in CORRECT:
        importlib.import_module(f"zoo.{name}")
    importlib.import_module("probes")
    # The verdict is all that counts here; making the evidence small takes seconds.
    shrink.BUDGET = 0
    chosen = [item for item in registry.CORRECT if probes is None or item.name in probes]
    if probes is not None:
        chosen.sort(key=lambda item: probes.index(item.name))
    sessions = {item.name: Session(item.id, item.target, Plan(cases=item.cases)) for item in chosen}
    results: dict[str, list[Any]] = {item.name: [] for item in chosen}
    for level in range(depth + 1):
        for item in chosen:
            for check, host in sessions[item.name].items:
                if level != (2 if check.code == "LP604" else int(check.code in LATER)):
                    continue
                signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                result = sessions[item.name].compute(check, host)
                signal.setitimer(signal.ITIMER_PROF, 0)
                results[item.name].append(result)
                if result.status in ("failed", "error"):
                    status = "failed" if result.status == "failed" else "raised"
                    return Outcome(status, result.label, item.name, result.message[:200])
            if level == 0 and inactive(results[item.name]):
                return Outcome("inactive", "no case acts", item.name)
    advice = {
        name: sorted({result.label for result in found if result.status == "advice"}) for name, found in results.items()
    }
    alone: dict[str, str] = {}
    for name, session in sessions.items():
        for host in session.hosts:
            for subject in session.subjects(host):
                if subject.solo_runs is not None:
                    alone[f"{name}[{host}]"] = digest(subject.solo_runs)
    return Outcome("survived", alone=alone, advice=advice, depth=depth)


def digest(solo: Any) -> str:
    """Of the rows of all requests that ran alone."""
    found = hashlib.blake2b(digest_size=8)
    rows: Iterable[Any] = solo._rows.items()
    for key, positions in sorted(rows, key=lambda item: repr(item[0])):
        for position, row in sorted(positions.items()):
            found.update(repr((key, position)).encode())
            found.update(row.numpy().tobytes())
    return found.hexdigest()
