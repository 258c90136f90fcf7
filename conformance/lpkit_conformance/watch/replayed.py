"""What the watcher looks for in a live server, looked for in a replay of the trace that it wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lpkit_conformance.results import Failed, Finding
from lpkit_conformance.watch.invariants import RULES, Sample, departures


def judge_rules(seen: Iterable[Any], where: dict[str, str], scenario: dict[str, Any]) -> None:
    """Fail at the first row that breaks a rule which holds for any processor.

    Args:
        seen: the calls of ``apply``, as a host observes them.
        where, scenario: of the finding.

    Raises:
        Failed: with the request, the step, and what is wrong.
    """
    for observation in seen:
        sample = Sample(observation.before, list(range(len(observation.rows))))
        for kind, position, _ in departures(sample, observation.after, lambda row, slot: False):
            wrong = sample.departure(kind, position, observation.after)
            at = {"step": str(observation.step), "request": observation.rows[position].request}
            raise Failed(
                Finding(
                    f"broken as in the server: {RULES[kind]}",
                    {**where, **at, "token": str(wrong.column)},
                    wrong.expected,
                    wrong.got,
                    scenario=scenario,
                )
            )
