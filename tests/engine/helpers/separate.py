"""Runs Python in a process of its own, whose Triton may take the CPU for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_VLLM = """
from lpkit.interfaces.lookup import do_without
do_without()
"""
"""Code in front of a program that needs no vLLM: its import takes 9 s."""

COMPILED = os.environ.get("TRITON_CACHE_DIR", str(Path.home() / ".triton" / "cache"))
"""What one of these processes compiles, the others do not."""


def separately(*arguments: str, path: Path, seconds: float = 600) -> str:
    """Return what ``python *arguments`` prints, with ``path`` in front of the import path; it has to end with 0."""
    paths = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": COMPILED},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
