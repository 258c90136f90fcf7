"""The numbers of one process: what it watched, what that cost, and what it found."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_VIOLATIONS = 100
"""Kept with their evidence, per process; later ones are counted."""


@dataclass
class Calls:
    """Of one method of one processor."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        """One call took so long."""
        self.count += 1
        self.seconds += seconds
        if seconds > self.longest:
            self.longest = seconds


@dataclass
class Seen:
    """Of one processor. ``violations``: by kind. ``rows``: compared."""

    calls: dict[str, Calls] = field(default_factory=dict)
    rows: int = 0
    violations: dict[str, int] = field(default_factory=dict)


@dataclass
class Violation:
    """The evidence of one violation, without text or tokens of anybody's."""

    processor: str
    kind: str
    rule: str
    runner: str
    step: int
    arguments: dict[str, Any]
    expected: str
    got: str
    time: float = field(default_factory=time.time)
    trace: str = ""
    note: str = ""


class Tally:
    """All numbers of one process.

    Attributes:
        processors: by name.
        violations: the first ones, with their evidence.
        errors: of the watcher itself.
        traces, traces_dropped: files written, and files that could not be or had no room.
    """

    def __init__(self) -> None:
        self.processors: dict[str, Seen] = {}
        self.violations: list[Violation] = []
        self.errors = self.traces = self.traces_dropped = 0
        self.steps = self.sampled = 0
        self.step_seconds = self.own_seconds = 0.0
        self.runner = ""
        self.active = True

    def keep(self, violation: Violation) -> None:
        """Keep a violation, if there is room."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(violation)

    def as_json(self) -> dict[str, Any]:
        """Plain data; :mod:`~lpkit_conformance.watch.metrics` shows it."""
        return {
            "runner": self.runner,
            "active": self.active,
            "steps": self.steps,
            "sampled_steps": self.sampled,
            "step_seconds": self.step_seconds,
            "own_seconds": self.own_seconds,
            "errors": self.errors,
            "traces": self.traces,
            "traces_dropped": self.traces_dropped,
            "processors": {name: asdict(seen) for name, seen in list(self.processors.items())},
            "violations": [asdict(violation) for violation in list(self.violations)],
        }
