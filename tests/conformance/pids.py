"""Whether processes of plugins are still there."""

from __future__ import annotations

import os
import time
from pathlib import Path


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ends(pid: int, seconds: float = 10) -> bool:
    """Whether a process that was killed goes: one that lets go of its memory still runs for a moment."""
    deadline = time.monotonic() + seconds
    while (there := runs(pid)) and time.monotonic() < deadline:
        time.sleep(0.001)
    return not there
