"""Waits for the end of plugins' processes."""

from __future__ import annotations

import os
import time
from pathlib import Path


def runs(pid: int) -> bool:
    """Return True if a process exists and is no zombie."""
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
    """Return True if a killed process ends; a process that releases its memory runs for a moment longer."""
    deadline = time.monotonic() + seconds
    while (there := runs(pid)) and time.monotonic() < deadline:
        time.sleep(0.001)
    return not there
