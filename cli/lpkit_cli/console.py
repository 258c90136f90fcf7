"""Output to the user: reports in files, and a progress line on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from lpkit_conformance.errors import OutputError

LONGEST_LINE = 200


def write(path: Path, report: Callable[[IO[str]], object]) -> None:
    """Write a report to a file; ``-`` is standard output.

    Raises:
        OutputError: the file cannot be written.
    """
    if str(path) == "-":
        report(sys.stdout)
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            report(file)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def on_a_terminal() -> bool:
    """True if a user can answer questions."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def rewrite_line(text: str = "") -> None:
    """Replace the current line of a terminal; do nothing in a pipe."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}"[:LONGEST_LINE])
        sys.stderr.flush()
