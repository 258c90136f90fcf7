"""The numbers of all processes of a run, as Prometheus reads them and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Numbers = Mapping[str, Mapping[str, Any]]
"""By process id, what :meth:`~lpkit_conformance.watch.tally.Tally.as_json` gave."""

_OF_PROCESS = (
    ("lpkit_watch_active", "gauge", "1 while processors are watched", "active"),
    ("lpkit_watch_steps_total", "counter", "Engine steps", "steps"),
    ("lpkit_watch_sampled_steps_total", "counter", "Steps of which rows were compared", "sampled_steps"),
    ("lpkit_watch_step_seconds_total", "counter", "Time of the steps, idle time left out", "step_seconds"),
    ("lpkit_watch_own_seconds_total", "counter", "Time that the watcher took of it", "own_seconds"),
    ("lpkit_watch_errors_total", "counter", "Errors of the watcher itself", "errors"),
    ("lpkit_watch_traces_total", "counter", "Traces written", "traces"),
    ("lpkit_watch_traces_dropped_total", "counter", "Traces that were not written", "traces_dropped"),
)
_OF_CALLS = (
    ("lpkit_watch_calls_total", "counter", "Calls of a processor", "count"),
    ("lpkit_watch_call_seconds_total", "counter", "Time of a processor's calls on the host", "seconds"),
    ("lpkit_watch_call_seconds_max", "gauge", "Its longest call", "longest"),
)


def prometheus(numbers: Numbers) -> str:
    """Text of the exposition format."""
    return "".join(f"{line}\n" for line in _lines(numbers))


def _lines(numbers: Numbers) -> Iterator[str]:
    for name, kind, text, key in _OF_PROCESS:
        yield from _head(name, kind, text)
        for process, found in numbers.items():
            yield f"{name}{_labels(process=process, runner=found['runner'])} {_number(found[key])}"
    for name, kind, text, key in _OF_CALLS:
        yield from _head(name, kind, text)
        for labels, seen in _processors(numbers):
            for method, calls in seen["calls"].items():
                yield f"{name}{_labels(**labels, method=method)} {_number(calls[key])}"
    yield from _head("lpkit_watch_rows_total", "counter", "Rows compared before and after a processor")
    for labels, seen in _processors(numbers):
        yield f"lpkit_watch_rows_total{_labels(**labels)} {seen['rows']}"
    yield from _head("lpkit_watch_violations_total", "counter", "Rules that a processor broke")
    for labels, seen in _processors(numbers):
        for broken, count in seen["violations"].items():
            yield f"lpkit_watch_violations_total{_labels(**labels, kind=broken)} {count}"


def _processors(numbers: Numbers) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
    for process, found in numbers.items():
        for name, seen in found["processors"].items():
            yield {"process": process, "processor": name}, seen


def violations(numbers: Numbers) -> dict[str, Any]:
    """How many there were, and the evidence of the first ones, oldest first."""
    told = [
        {"process": process, **violation} for process, found in numbers.items() for violation in found["violations"]
    ]
    counts: dict[str, dict[str, int]] = {}
    for labels, seen in _processors(numbers):
        for kind, count in seen["violations"].items():
            of_processor = counts.setdefault(labels["processor"], {})
            of_processor[kind] = of_processor.get(kind, 0) + count
    return {"counts": counts, "violations": sorted(told, key=lambda violation: float(violation["time"]))}


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}.", f"# TYPE {name} {kind}"


def _labels(**labels: str) -> str:
    shown = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(shown) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, (bool, int)) else repr(float(value))
