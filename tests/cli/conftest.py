"""Runs the command as its users do: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", "cli"))

Lpkit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def lpkit(tmp_path: Path) -> Lpkit:
    """``lpkit("new", "my-proc", cwd=..., env=...)`` runs it; ``cwd`` is ``tmp_path`` if not given."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lpkit_cli.app", *arguments],
            cwd=cwd or tmp_path,
            env={**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    return run
