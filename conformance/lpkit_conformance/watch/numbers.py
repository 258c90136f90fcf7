"""The numbers of watched processes: counted, as a line of text, as JSON, and for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_VIOLATIONS = 100
"""Violations per process that are kept with their evidence; later ones are only counted."""

Numbers = Mapping[str, Mapping[str, Any]]
"""Result of :meth:`ProcessCounts.as_json` of each engine, by process (``process_name``)."""


@dataclass
class CallTimes:
    """Calls of one method of one processor."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a call."""
        self.count += 1
        self.seconds += seconds
        if seconds > self.longest:
            self.longest = seconds


@dataclass
class ProcessorCounts:
    """Counts of one processor: its calls by method, rows compared, and violations by kind.

    With ``LPKIT_QUARANTINE``: its exceptions, and the requests served without it. ``off``: it is off for good.
    ``rules``: the processor's own :data:`lpkit.rules.receipt.Counts`.
    """

    calls: dict[str, CallTimes] = field(default_factory=dict)
    rows: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    exceptions: int = 0
    quarantined: int = 0
    off: bool = False
    rules: dict[str, dict[str, list[int]]] = field(default_factory=dict)


@dataclass
class Violation:
    """The evidence of one violation. It holds no text and no tokens of users."""

    processor: str
    kind: str
    rule: str
    runner: str
    step: int
    arguments: dict[str, Any]
    expected: str
    got: str
    then: str = ""
    time: float = field(default_factory=time.time)
    trace: str = ""
    note: str = ""

    def __str__(self) -> str:
        parts = [
            f"{self.processor} broke a rule on {self.runner.upper()}, step {self.step}: {self.rule}",
            f"expected {self.expected}; got {self.got}",
            f"arguments: {self.arguments or 'none'}",
            self.then,
            f"evidence: {self.trace}" if self.trace else self.note,
        ]
        return "; ".join(filter(None, parts))


class ProcessCounts:
    """Counts of one process.

    Attributes:
        processors: counts by the processor's name.
        violations: the first violations, with their evidence.
        errors: errors of the watcher itself.
        traces, traces_dropped: files written, and files that could not be written.
        active: False after the watcher has switched itself off.
    """

    def __init__(self) -> None:
        self.processors: dict[str, ProcessorCounts] = {}
        self.violations: list[Violation] = []
        self.errors = self.traces = self.traces_dropped = 0
        self.steps = self.sampled = 0
        self.step_seconds = self.own_seconds = 0.0
        self.runner = ""
        self.active = True

    def keep(self, violation: Violation) -> None:
        """Keep a violation if there is room."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(violation)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
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
            "processors": {name: asdict(counts) for name, counts in list(self.processors.items())},
            "violations": [asdict(violation) for violation in list(self.violations)],
        }


SEEN = 300
"""Rows to compare until a defect that shows in 1 % of them was met with a probability of 95 %."""

STALL = 600.0
"""Seconds of steps without a sample after which sampling has stalled."""


def summary(process: Mapping[str, Any]) -> str:
    """Return the numbers of one process as one line."""
    share = process["own_seconds"] / process["step_seconds"] if process["step_seconds"] else 0.0
    violations = [
        f"{count} x {kind} by {name}"
        for name, counts in process["processors"].items()
        for kind, count in counts["violations"].items()
    ]
    rows = sum(counts["rows"] for counts in process["processors"].values())
    meets = "nothing is met"
    if rows:  # of all processors
        seconds = SEEN * process["step_seconds"] * len(process["processors"]) / rows
        meets = f"a defect in 1 % of the rows is met within {seconds:.0f} s of steps"
    return (
        f"{process['steps']} steps, {process['sampled_steps']} sampled, {rows} rows compared, "
        f"{100 * share:.2f} % of step time; at this rate, {meets}; "
        + (f"violations: {', '.join(violations)}" if violations else "no violations")
    )


def violations(numbers: Numbers) -> dict[str, Any]:
    """Return the counts by processor and kind, and the evidence of the first violations, oldest first."""
    evidence = [
        {"process": process, **violation} for process, counts in numbers.items() for violation in counts["violations"]
    ]
    counts: dict[str, dict[str, int]] = {}
    for labels, processor in _processors(numbers):
        for kind, count in processor["violations"].items():
            by_kind = counts.setdefault(labels["processor"], {})
            by_kind[kind] = by_kind.get(kind, 0) + count
    return {"counts": counts, "violations": sorted(evidence, key=lambda violation: float(violation["time"]))}


def rules(numbers: Numbers) -> list[dict[str, Any]]:
    """Return the counts of receipts: by rule, and by the operator's step, which is empty for steps of requests."""
    return [
        {**labels, "rule": rule, "step": step, "requests": requests, "rows": rows}
        for labels, processor in _processors(numbers)
        for rule, by_step in processor["rules"].items()
        for step, (requests, rows) in by_step.items()
    ]


_METRICS = {
    "process": (
        ("lpkit_watch_active", "gauge", "1 while processors are watched", "active"),
        ("lpkit_watch_steps_total", "counter", "Engine steps", "steps"),
        ("lpkit_watch_sampled_steps_total", "counter", "Steps with compared rows", "sampled_steps"),
        ("lpkit_watch_step_seconds_total", "counter", "Time of the steps, without idle time", "step_seconds"),
        ("lpkit_watch_own_seconds_total", "counter", "Time of the watcher in the steps", "own_seconds"),
        ("lpkit_watch_errors_total", "counter", "Errors of the watcher itself", "errors"),
        ("lpkit_watch_traces_total", "counter", "Traces written", "traces"),
        ("lpkit_watch_traces_dropped_total", "counter", "Traces that could not be written", "traces_dropped"),
    ),
    "method": (
        ("lpkit_watch_calls_total", "counter", "Calls of a processor", "count"),
        ("lpkit_watch_call_seconds_total", "counter", "Time of a processor's calls on the host", "seconds"),
        ("lpkit_watch_call_seconds_max", "gauge", "Longest call of a processor", "longest"),
    ),
    "processor": (
        ("lpkit_watch_rows_total", "counter", "Rows compared before and after a processor", "rows"),
        ("lpkit_watch_quarantined_total", "counter", "Requests served without a processor that raised", "quarantined"),
        ("lpkit_watch_off", "gauge", "1 after a processor was turned off for good", "off"),
    ),
    "rule": (
        ("lpkit_rules_requests_total", "counter", "Requests with a step of a rule", "requests"),
        ("lpkit_rules_rows_total", "counter", "Rows that a rule changed", "rows"),
    ),
    "kind": (("lpkit_watch_violations_total", "counter", "Rows that a processor broke", "count"),),
}
"""Name, type, help and key of each metric, by the label that tells its samples apart."""


def prometheus(numbers: Numbers) -> str:
    """Return the numbers in Prometheus' text format."""
    samples = _samples(numbers)
    return "".join(
        f"# HELP {name} {text}.\n# TYPE {name} {kind}\n"
        + "".join(f"{name}{_labels(labels)} {_number(values[key])}\n" for labels, values in samples[of])
        for of, metrics in _METRICS.items()
        for name, kind, text, key in metrics
    )


def _samples(numbers: Numbers) -> dict[str, list[tuple[Mapping[str, str], Mapping[str, Any]]]]:
    """Return labels and values of the samples, as in :data:`_METRICS`."""
    processors = list(_processors(numbers))
    return {
        "process": [({"process": pid, "runner": counts["runner"]}, counts) for pid, counts in numbers.items()],
        "method": [({**labels, "method": m}, calls) for labels, p in processors for m, calls in p["calls"].items()],
        "processor": [*processors],
        "rule": [
            ({label: item[label] for label in ("process", "processor", "rule", "step")}, item)
            for item in rules(numbers)
        ],
        "kind": [
            ({**labels, "kind": kind}, {"count": count})
            for labels, processor in processors
            for kind, count in processor["violations"].items()
        ],
    }


def _processors(numbers: Numbers) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
    for process, counts in numbers.items():
        for name, processor in counts["processors"].items():
            yield {"process": process, "processor": name}, processor


def _labels(labels: Mapping[str, str]) -> str:
    shown = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(shown) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, (bool, int)) else repr(float(value))
