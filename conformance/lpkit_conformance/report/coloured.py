"""The plain text in colours."""

from __future__ import annotations

from typing import IO

from lpkit_conformance.report import text
from lpkit_conformance.report.terminal import show_coloured
from lpkit_conformance.results import Report


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Print the whole report."""
    show_coloured(text.lines(report, verbose), file)
