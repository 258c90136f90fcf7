"""The formats of a report of ``lpkit check``.

A new one is a module of this room with ``write(report, file, verbose)``, and a row of the table; the command takes its
``--format`` values and its options for files from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lpkit_conformance.results import Report


class Format(NamedTuple):
    """``module`` writes it; ``option`` takes the FILE that it goes to, without one it is a value of ``--format``."""

    module: str
    option: str = ""
    help: str = ""


FORMATS = {
    "rich": Format("coloured"),
    "plain": Format("text"),
    "github": Format("github"),
    "json": Format("as_json", "--json", "Write the report as JSON; - is standard output."),
    "html": Format("html", "--html", "Write the report as one page for a browser, with pictures."),
    "sarif": Format("sarif", "--sarif", "Write the findings as SARIF 2.1.0, for code scanning."),
    "junit": Format("junit", "--junit-xml", "Write the report as JUnit XML."),
}


def write(name: str, report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write ``report`` in a format to ``file``; ``verbose`` lists every check, in formats for people."""
    import_module(f"lpkit_conformance.report.{FORMATS[name].module}").write(report, file, verbose)
