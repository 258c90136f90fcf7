"""What the commands share towards their user: an exit code, reports in files, a line of progress on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

COULD_NOT_RUN = 2
"""The exit code of a command that did nothing."""

LONGEST_LINE = 200


def write(path: Path, text: str, command: str) -> None:
    """Write a report; ``-`` is standard output. Ends the command with one line if that cannot be done."""
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(f"lpkit {command}: cannot write {path}: {error.strerror}", err=True)
        raise typer.Exit(COULD_NOT_RUN) from None


def rewrite_line(text: str = "") -> None:
    """Replace the terminal's current line."""
    sys.stderr.write(f"\r\x1b[2K{text}"[:LONGEST_LINE])
    sys.stderr.flush()
