"""A table of the plugin's with room for fewer rows or slots than the engine has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lpkit_conformance.explanation.advice import cause, fix
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.findings import making_line
from lpkit_conformance.explanation.raised import Raised
from lpkit_conformance.hosts import PluginError, default_host
from lpkit_conformance.programs.generate import Arrive, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.subject import Subject

LEAST = 2
"""Fewest rows of such a table: a line that takes a single row only is another mistake."""


MANY = 64
"""Requests in a batch that is fuller than small tables."""


def with_room(
    finding: Finding, subject: Subject, error: PluginError, make_host: MakeHost = default_host, most: int = MANY
) -> Finding:
    """Return the finding of an exception; it names the table if the plugin raises only for larger batches.

    Ever smaller full batches of requests with equal arguments are served, from ``most`` requests on: the plugin must
    raise the same exception from some number on, and none for fewer.
    """

    def raised(count: int) -> PluginError | None:
        try:
            with subject.as_imported():
                for _ in make_host(subject, count).run([*(Arrive(f"a{n}", 0) for n in range(count)), Step()]):
                    pass
        except PluginError as again:
            return again if (again.exception, again.location) == (error.exception, error.location) else None
        return None

    fits, smallest = LEAST, raised(most)
    if smallest is None or raised(fits):
        return finding
    while most - fits > 1:
        middle = (fits + most) // 2
        if again := raised(middle):
            most, smallest = middle, again
        else:
            fits = middle
    state = _of_length(smallest, fits)
    line = making_line(subject.plugin.cls, state) if state else ""
    because = cause("room", "exception").format(count=fits, more=fits + 1)
    return replace(finding, cause=because, fix=fix("room", "exception"), location=line or finding.location, state=state)


def _of_length(error: PluginError, length: int) -> str:
    """Return the attribute of the failing object that has so many entries; empty if none has."""
    raised = Raised(error.exception, error.summary, error.__cause__)
    owner: Any = next((value for name, value in raised.locals() if name == "self"), None)
    held = [name for name, value in getattr(owner, "__dict__", {}).items() if _length(value) == length]
    return f"self.{held[0]}" if held else ""


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except TypeError:
        return None
