"""Code under Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys


def interpret(code: str, *arguments: object) -> None:
    """Run it in a process of its own, to the end: Triton decides when it is imported whether it interprets."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
