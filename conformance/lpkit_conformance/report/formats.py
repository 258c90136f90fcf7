"""The formats of a report of ``lpkit check``.

To add a format, write a function ``write(report, file, verbose)`` in a module of this room, add a row to the table, and
an option to the command.
"""

from __future__ import annotations

from importlib import import_module
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from lpkit_conformance.results import Report


FORMATS = {
    "rich": "text:write_coloured",
    "plain": "text:write",
    "github": "github:write",
    "json": "as_json:write",
    "html": "html:write",
    "sarif": "sarif:write",
    "junit": "junit:write",
}
"""The writer of each format: module and function of this room."""


def write(name: str, report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write ``report`` in a format to ``file``; ``verbose`` lists every check, in formats for people."""
    module, _, writer = FORMATS[name].partition(":")
    getattr(import_module(f"lpkit_conformance.report.{module}"), writer)(report, file, verbose)
