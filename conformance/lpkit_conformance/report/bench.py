"""A bench as tables, one per size with a line per candidate, and as a plot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import IO

from lpkit_conformance.bench.results import Bench, CandidateResult, Point, TargetBench, Times
from lpkit_conformance.report import terminal
from lpkit_conformance.report.plot import Curve, Panel, plot, seconds

WIDTH = 150
"""Width of output that is not a terminal."""

WIDE = 116
"""Width of a terminal that fits all numbers; a narrower terminal shows the most important columns."""

COLUMNS = ("apply", "vs target", "vs floor", "update", "idle", "launches", "peak", "first call")
FEWER = ("apply", "vs target", "vs floor", "launches")
ON_A_GPU = ("host", "GPU")
"""Parts of ``apply``, shown after it; they take :data:`WIDER` more characters."""

WIDER = 20


def show(bench: Bench, file: IO[str]) -> None:
    """Print every target's tables; coloured on a terminal."""
    terminal.show(_lines(bench, shutil.get_terminal_size().columns if file.isatty() else WIDTH), file)


def _lines(bench: Bench, width: int) -> Iterator[terminal.Line]:
    where = bench.environment
    for target in bench.targets:
        if not target.measured:
            continue
        yield f"{target.target}  {target.interface}  {target.case}", "bold"
        yield (
            f"  {where.get('device')}, {where.get('processor')}, {where.get('threads')} thread(s), "
            f"{where.get('kernels')} kernels, torch {where.get('torch')}, against {target.judged_with}",
            "dim",
        )
        for point in target.points:
            size = f"{point.batch} x {point.vocab:,}  ({point.logits_bytes / 2**20:.3g} MiB of logits)"
            yield from ("", f"{size}: {point.problem}" if point.problem else size)
            if point.sides:
                yield from _table(point, width)
        yield from (f"  {line}" for line in _launches(target))
        yield from ((f"  {note}", "yellow") for note in _notes(target))
        yield ""
    yield from (f"WORSE  {line}" for line in bench.worse)
    load = where.get("load")
    if load and any(target.measured and target.points for target in bench.targets):
        yield (
            f"Medians over rounds in which the candidates took turns. Machine load at the start: {load[0]} on "
            f"{where.get('cores')} cores.",
            "dim",
        )


def write_plot(bench: Bench, file: IO[str]) -> None:
    """``apply`` against the number of requests, a panel per target and vocabulary, as SVG."""
    panels = [
        Panel(f"{target.target}, {vocab:,} tokens", _curves([p for p in target.points if p.vocab == vocab]))
        for target in bench.targets
        for vocab in dict.fromkeys(point.vocab for point in target.points)
    ]
    file.write(plot("Time of one apply against the number of requests", panels))


def _curves(points: Sequence[Point]) -> tuple[Curve, ...]:
    """Return a curve per candidate that was measured at any of these sizes."""
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for point in sorted(points, key=lambda point: point.batch):
        for side in point.sides:
            if side.apply is not None and side.apply.median > 0:
                curves.setdefault((side.name, side.kind), []).append((point.batch, side.apply.median))
    return tuple(Curve(name, kind, tuple(curve)) for (name, kind), curve in curves.items())


def _table(point: Point, width: int) -> Iterator[terminal.Line]:
    on_a_gpu = any(side.gpu for side in point.sides)
    shown: tuple[str, ...] = FEWER if width < WIDE + WIDER * on_a_gpu else COLUMNS
    if on_a_gpu:
        shown = (shown[0], *ON_A_GPU, *(shown[1:2] if shown == FEWER else shown[1:]))
    cells = [(f"  {side.name}", _cells(side, point)) for side in point.sides]
    rows = [("", *shown), *((name, *(row.get(column, "") for column in shown)) for name, row in cells)]
    heading, *lines = terminal.table(rows, right=range(1, 1 + len(shown)))
    yield heading, "dim"
    for side, line in zip(point.sides, lines, strict=True):
        yield line, {"target": "bold", "floor": "dim"}.get(side.kind, "")


def _cells(side: CandidateResult, point: Point) -> dict[str, str]:
    """Return the cells of a candidate by column."""
    if side.apply is None:
        return {"apply": "-"}
    return {
        "apply": duration(side.apply),
        "host": duration(side.launch),
        "GPU": duration(side.gpu),
        "vs target": ratio(side.versus_target),
        "vs floor": ratio(side.versus_floor),
        "update": duration(side.churn),
        "idle": duration(side.idle),
        "launches": _launched(side),
        "peak": "-" if side.peak is None else f"{side.peak / point.logits_bytes:.2f}x",
        "first call": "-" if side.first is None else seconds(side.first),
    }


def _launched(side: CandidateResult) -> str:
    """Return ``3 of 4``: launches and the budget of the rule; ``?``: not counted, as the code reads a value on
    the host."""
    count = "?" if side.launches is None else str(side.launches)
    return count if side.launch_budget is None else f"{count} of {side.launch_budget}"


def _target_results(target: TargetBench) -> Iterator[tuple[Point, CandidateResult]]:
    """Yield the target's results, without its alternatives', the smallest size first."""
    for point in sorted(target.points, key=lambda point: point.logits_bytes):
        yield from ((point, side) for side in point.sides if side.kind == "target")


def _launches(target: TargetBench) -> Iterator[str]:
    """A line per host on which the target exceeds its launch budget, with the largest count."""
    most: dict[str, tuple[int, int, Point]] = {}
    for point, side in _target_results(target):
        count, granted = side.launches or 0, side.launch_budget
        if granted is not None and count > most.get(side.host, (granted,))[0]:
            most[side.host] = count, granted, point
    for host, (count, granted, point) in most.items():
        yield (
            f"{host.upper()}: {count} launches on a GPU at {point.batch} x {point.vocab:,}, in a step in which no "
            f"request comes or goes; the budget of such a rule is {granted}: combine operations, or use lpkit.kernels."
        )


def _notes(target: TargetBench) -> Iterator[str]:
    yield from target.notes
    if not any(side.acted for _, side in _target_results(target)):
        yield "With this case the processor changed no logit, so these are the costs of requests that do not use it."
    for point in target.points:
        for side in point.sides:
            if side.problem and side.kind != "target":
                yield f"{point.batch} x {point.vocab:,}: {side.name}: {side.problem}"


def duration(times: Times | None) -> str:
    """Three digits and a unit."""
    return "-" if times is None else seconds(times.median)


def ratio(value: float | None) -> str:
    """``1.24x``."""
    return "-" if value is None else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
