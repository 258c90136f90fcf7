"""A process and everything that it has started: seeing them, and ending them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

MARK = "LPKIT_PROCESS"
"""The environment variable that names the folder of the child that a process belongs to.

Processes that a plugin starts inherit it. They are found after their parent has ended, even in their own session.
"""

ADOPT_ORPHANS = 36
"""Linux's PR_SET_CHILD_SUBREAPER."""

END_SECONDS = 1.0
"""Time for killed processes to end."""


def end(process: subprocess.Popen[bytes], folder: str) -> None:
    """End ``process`` and the processes that it has started, even if it has ended itself; wait for ``process``.

    Without ``/proc``, processes that have left the process group stay.

    Args:
        folder: the mark of ``process``.
    """
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        with contextlib.suppress(OSError):  # no taskkill: at least the process itself goes
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
    if process.poll() is None:
        process.kill()
    process.wait()
    deadline = time.monotonic() + END_SECONDS
    while (left := marked(folder)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def marked(folder: str) -> list[int]:
    """Processes that belong to the child with that folder, or to a child of its own; empty where that is unknown."""
    mark = os.fsencode(f"{MARK}={folder}")
    ids = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            entries = environment.read_bytes().split(b"\0")
            if any(entry == mark or entry.startswith(mark + b"/") for entry in entries):
                ids.append(int(environment.parent.name))
    return ids


def waited(pid: int) -> float:
    """Return the seconds for which a process was ready to run and other processes ran; 0 where that is unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def own_folder() -> str | None:
    """The folder of the child that this process is, or belongs to; it is removed at the child's end."""
    folder = os.environ.get(MARK, "")
    return folder if folder and Path(folder).is_dir() else None


def adopt_orphans() -> None:
    """Adopt processes whose parent has ended, where the system supports it (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)


def children() -> dict[int, str]:
    """Return running direct children of this process: id -> command; empty where that is unknown."""
    this_process = str(os.getpid())
    commands = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            head, _, rest = status.read_text(errors="replace").rpartition(")")
            state, parent = rest.split()[:2]
            if parent == this_process and state != "Z":
                commands[int(status.parent.name)] = head.partition("(")[2]
    return commands
