"""What the commands share towards their user: an exit code, reports in files, a line of progress on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from lpkit_conformance.errors import OutputError

COULD_NOT_RUN = 2
"""The exit code of a command that did nothing."""

LONGEST_LINE = 200


def write(path: Path, text: str) -> None:
    """Write a report; ``-`` is standard output.

    Raises:
        OutputError: the file cannot be written.
    """
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def rewrite_line(text: str = "") -> None:
    """Replace the terminal's current line."""
    sys.stderr.write(f"\r\x1b[2K{text}"[:LONGEST_LINE])
    sys.stderr.flush()
