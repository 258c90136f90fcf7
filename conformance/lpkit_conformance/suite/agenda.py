"""The checks of a run in their order, what each requires, and what blocks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lpkit_conformance.results import NEEDS, CheckResult, Status

STOPPING: tuple[Status, ...] = ("failed", "error", "blocked")
"""Outcomes of a requirement that stop a check."""

SILENT = "changed no logit in runs in which other arguments did"
"""Words of a note on a case. A report with failures omits the note: the failures may be the reason."""


class Agenda:
    """A run's checks and their results so far.

    Args:
        requires: the labels that each check requires, by its label; the labels are in the order of the run.
    """

    def __init__(self, requires: Mapping[str, Sequence[str]]) -> None:
        self.requires = requires
        self.results: dict[str, CheckResult] = {}

    @property
    def left(self) -> list[str]:
        """Labels without a result."""
        return [label for label in self.requires if label not in self.results]

    def blocked(self, label: str) -> str:
        """Return the message of a check that a failure blocks, with the failed checks; empty if it may run."""
        stopping = [self.results[other] for other in self.requires[label] if other in self.results]
        roots = {root for result in stopping if result.status in STOPPING for root in result.roots}
        return NEEDS + ", ".join(sorted(roots)) if roots else ""
