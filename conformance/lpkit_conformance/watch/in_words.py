"""The numbers and violations of a server, as the log and the command line tell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpkit_conformance.watch.tally import Violation


def line(violation: Violation) -> str:
    """One violation."""
    parts = [
        f"{violation.processor} broke a rule on {violation.runner.upper()}, step {violation.step}: {violation.rule}",
        f"expected {violation.expected}; got {violation.got}",
        f"arguments: {violation.arguments or 'none'}",
        f"evidence: {violation.trace}" if violation.trace else violation.note,
    ]
    return "; ".join(filter(None, parts))


def summary(numbers: Mapping[str, Any]) -> str:
    """The numbers of one process (:meth:`~lpkit_conformance.watch.tally.Tally.as_json`) in one line."""
    share = numbers["own_seconds"] / numbers["step_seconds"] if numbers["step_seconds"] else 0.0
    found = [
        f"{count} x {kind} by {name}"
        for name, seen in numbers["processors"].items()
        for kind, count in seen["violations"].items()
    ]
    rows = sum(seen["rows"] for seen in numbers["processors"].values())
    return (
        f"{numbers['steps']} steps, {numbers['sampled_steps']} sampled, {rows} rows compared, "
        f"{100 * share:.2f} % of step time; " + (f"violations: {', '.join(found)}" if found else "no violations")
    )
