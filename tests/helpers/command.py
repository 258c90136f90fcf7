"""Runs the command as its users do, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
FIXTURES = TESTS / "contracts" / "fixtures"
SUSPECTS = TESTS / "conformance" / "suspects"
SOURCES = tuple(ROOT / folder for folder in ("sdk", "conformance", "cli"))


def python(*arguments: str, cwd: Path, path: tuple[Path, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """``python *arguments`` in ``cwd``, with lpkit's checkout and ``path`` on the import path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LPKIT", "VLLM", "GITHUB"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={
            **environment,
            "PYTHONPATH": os.pathsep.join(map(str, (*SOURCES, *path))),
            "PYTHONUTF8": "1",
            "OMP_NUM_THREADS": "1",
            **env,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def lpkit(*arguments: str, cwd: Path, path: tuple[Path, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``lpkit *arguments`` in the same way."""
    return python("-m", "lpkit_cli.app", *arguments, cwd=cwd, path=path, **env)


def write_suspect(file: Path, base: str) -> None:
    """Write a module whose ``Plugin`` is a class of ``suspects/bias.py``."""
    source = (SUSPECTS / "bias.py").read_text(encoding="utf-8")
    file.write_text(f"{source}\n\nclass Plugin({base}):\n    pass\n", encoding="utf-8")
