"""The formats of a report of ``lpkit check``.

To add a format, write a function ``write(report, file, verbose)`` in a module of this room and add a row to the table.
The command takes its ``--format`` values and its file options from the table.
"""

from __future__ import annotations

from importlib import import_module
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lpkit_conformance.results import Report


class Format(NamedTuple):
    """``writer`` is a function of this room. ``option`` takes its FILE; without an option, the format is a
    ``--format`` value."""

    writer: str
    option: str = ""
    help: str = ""


FORMATS = {
    "rich": Format("text:write_coloured"),
    "plain": Format("text:write"),
    "github": Format("github:write"),
    "json": Format("as_json:write", "--json", "Write the report as JSON; - is standard output."),
    "html": Format("html:write", "--html", "Write the report as one page for a browser, with pictures."),
    "sarif": Format("sarif:write", "--sarif", "Write the findings as SARIF 2.1.0, for code scanning."),
    "junit": Format("junit:write", "--junit-xml", "Write the report as JUnit XML."),
}


def write(name: str, report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write ``report`` in a format to ``file``; ``verbose`` lists every check, in formats for people."""
    module, _, writer = FORMATS[name].writer.partition(":")
    getattr(import_module(f"lpkit_conformance.report.{module}"), writer)(report, file, verbose)
