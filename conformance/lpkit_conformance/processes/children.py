"""Child processes: started so that whatever they start can be ended with them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def spawn(arguments: Sequence[str], output: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A Python process that runs plugins; it leads a group of its own, without standard input.

    Raises:
        ModuleNotFoundError: there is no torch, which the parent can do without and this process cannot.
    """
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    return subprocess.Popen(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # ignored on Windows
    )


def command(module: str, *arguments: str) -> list[str]:
    """What runs ``start(arguments)`` of a module in another Python.

    Nothing of the current folder is importable there: a plugin's ``types.py`` would replace the library's.
    """
    begin = "import sys; sys.path[:] = [entry for entry in sys.path if entry]"
    return [sys.executable, "-c", f"{begin}; from {module} import start; start(sys.argv[1:])", *arguments]


def import_path() -> list[str]:
    """What this process imports from, but for the current folder."""
    return [entry for entry in sys.path if entry]


def environment(threads: int = 1) -> dict[str, str]:
    """The environment of a child: it imports what this process can, and computes with that many threads."""
    inherited = os.environ.get("PYTHONPATH", "")
    own = import_path()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*own, inherited]) if inherited else os.pathsep.join(own),
        "OMP_NUM_THREADS": str(threads),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    }


def end(child: subprocess.Popen[bytes]) -> None:
    """End ``child`` and what it has started, whether or not it is still there; wait for ``child`` only."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        with contextlib.suppress(OSError):  # no taskkill: at least the child itself goes
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(child.pid)], capture_output=True, check=False)
    if child.poll() is None:
        child.kill()
    child.wait()


ADOPT_ORPHANS = 36
"""Linux's PR_SET_CHILD_SUBREAPER."""


def adopt_orphans() -> None:
    """Let processes whose parent has ended become this process's own, where the system can do that (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)


def children() -> dict[int, str]:
    """Processes that this one has started, directly, and that still run: id -> command; empty where that is unknown."""
    own = str(os.getpid())
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            head, _, rest = status.read_text(errors="replace").rpartition(")")
            state, parent = rest.split()[:2]
            if parent == own and state != "Z":
                found[int(status.parent.name)] = head.partition("(")[2]
    return found
