"""Runs Python in a process of its own, whose Triton may take the CPU for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def separately(*arguments: str, path: Path, seconds: float = 600) -> str:
    """Return what ``python *arguments`` prints, with ``path`` in front of the import path; it has to end with 0."""
    paths = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
