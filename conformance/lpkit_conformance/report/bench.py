"""A bench as tables, one per size with a line per thing that was measured, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table

from lpkit_conformance.bench.results import Acceptance, Bench, Bound, CandidateResult, Point, TargetBench, Times
from lpkit_conformance.report.plot import Curve, Panel, plot, seconds

WIDTH = 150
"""In a pipe, where there is no terminal to ask."""

WIDE = 124
"""Columns of a terminal that hold all numbers; a narrower one shows those that matter most."""

COLUMNS = (
    "apply",
    "vs it",
    "vs floor",
    "update",
    "idle",
    "ops",
    "syncs",
    "to device",
    "peak",
    "first call",
)
FEWER = ("apply", "vs it", "vs floor", "ops")
ON_A_GPU = ("host", "GPU")
"""Of ``apply``, shown behind it, in a terminal as much wider as these take."""

WIDER = 20


def show(bench: Bench, file: IO[str]) -> None:
    """Print every target's tables; coloured on a terminal."""
    console = Console(file=file, highlight=False, width=None if file.isatty() else WIDTH)
    where = bench.environment
    for target in bench.targets:
        if not target.measured:
            continue
        if target.drafts:
            console.print(f"[bold]{target.target}[/]  acceptance of drafts from the model without it")
            console.print(_drafts(target.drafts))
            console.print()
            continue
        console.print(f"[bold]{target.target}[/]  {target.interface}  {_escape(target.case)}")
        console.print(
            f"  {where.get('device')}, {where.get('processor')}, {where.get('threads')} thread(s), "
            f"{where.get('kernels')} kernels, torch {where.get('torch')}, against {target.judged_with}",
            style="dim",
        )
        for point in target.points:
            console.print()
            console.print(_heading(point))
            if point.sides:
                console.print(_table(point, console.width))
        for line in (*_bounds(target), *_launches(target), *_predictions(target)):
            console.print(f"  {_escape(line)}")
        for note in _notes(target):
            console.print(f"  {_escape(note)}", style="yellow")
        console.print()
    for line in bench.worse:
        console.print(f"WORSE  {_escape(line)}", style="red")
    load = where.get("load")
    if load and any(target.measured and target.points for target in bench.targets):
        console.print(
            f"Median over rounds in which all candidates took turns. Machine load at the start: {load[0]} on "
            f"{where.get('cores')} cores.",
            style="dim",
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
    """One per candidate that was measured at any of these sizes."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for point in sorted(points, key=lambda point: point.batch):
        for side in point.sides:
            if side.apply is not None and side.apply.median > 0:
                found.setdefault((side.name, side.kind), []).append((point.batch, side.apply.median))
    return tuple(Curve(name, kind, tuple(curve)) for (name, kind), curve in found.items())


def _heading(point: Point) -> str:
    size = f"{point.batch} x {point.vocab:,}  ({data(point.logits_bytes)} of logits)"
    return f"{size}: {point.problem}" if point.problem else size


def _table(point: Point, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    on_a_gpu = any(side.gpu for side in point.sides)
    shown: tuple[str, ...] = FEWER if width < WIDE + WIDER * on_a_gpu else COLUMNS
    if on_a_gpu:
        shown = (shown[0], *ON_A_GPU, *(shown[1:2] if shown == FEWER else shown[1:]))
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for side in point.sides:
        style = {"target": "bold", "floor": "dim"}.get(side.kind, "")
        cells = dict(zip((*COLUMNS, *ON_A_GPU), _cells(side, point), strict=True))
        table.add_row(f"  {_escape(side.name)}", *(cells[name] for name in shown), style=style)
    return table


def _drafts(found: Sequence[Acceptance]) -> Table:
    """A line per case."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("accepted", justify="right")
    table.add_column("lowest tenth", justify="right")
    table.add_column("changed", justify="right")
    for number in found[0].tokens_per_step:
        table.add_column(f"tokens with {number}", justify="right")
    table.add_column("case", overflow="fold")
    for item in found:
        tokens = (f"{value:.2f} of {int(number) + 1}" for number, value in item.tokens_per_step.items())
        table.add_row(f"{item.mean:.3f}", f"{item.lowest:.3f}", f"{item.changed:.0%}", *tokens, _escape(item.case))
    return table


def _cells(side: CandidateResult, point: Point) -> tuple[str, ...]:
    if side.apply is None:
        return ("-", *[""] * (len(COLUMNS + ON_A_GPU) - 1))
    return (
        duration(side.apply),
        ratio(side.versus_target),
        ratio(side.versus_floor),
        duration(side.churn),
        duration(side.idle),
        str(side.operations),
        str(sum(side.syncs.values())),
        data(side.to_device),
        "-" if side.peak is None else f"{side.peak / point.logits_bytes:.2f}x",
        "-" if side.first is None else seconds(side.first),
        duration(side.launch),
        duration(side.gpu),
    )


def _bounds(target: TargetBench) -> list[str]:
    """What binds the target's steps on each host: one line per cause, with the evidence at its largest size."""
    found: dict[tuple[str, str], list[tuple[Point, Bound]]] = {}
    for point in sorted(target.points, key=lambda point: point.logits_bytes):
        for side in point.sides:
            if side.kind == "target" and side.bound:
                found.setdefault((side.host, side.bound.by), []).append((point, side.bound))
    lines = []
    for (host, by), seen in found.items():
        point, last = seen[-1]
        sizes = ", ".join(f"{n:,}" for n in dict.fromkeys(point.batch for point, _ in seen))
        what = f"bound by {by}" if by else "as fast as the memory"
        advice = f"; {last.advice}" if last.advice else ""
        lines.append(
            f"{host.upper()}, {sizes} requests: {what}. At {point.batch} x {point.vocab:,} {last.why}{advice}."
        )
    return lines


def _launches(target: TargetBench) -> list[str]:
    """What the target's steps ask a GPU for, where that could be counted, and what lpkit grants a rule of its kind."""
    found: dict[str, dict[int, tuple[Point, int | None]]] = {}
    unknown: dict[str, int] = {}
    for point in sorted(target.points, key=lambda point: point.logits_bytes):
        for side in point.sides:
            if side.kind == "target" and side.launches is not None:
                found.setdefault(side.host, {}).setdefault(side.launches, (point, side.launch_budget))
            elif side.kind == "target" and side.launch_budget is not None and side.apply:
                unknown[side.host] = side.launch_budget
    lines = [
        f"{host.upper()}: launches could not be counted without a GPU: the processor reads a value on the host, or "
        f"fails on a device without memory; the budget of such a rule is {granted}."
        for host, granted in unknown.items()
        if host not in found
    ]
    for host, seen in found.items():
        least, most = min(seen), max(seen)
        (point, granted) = seen[most]
        count = f"{most}" if least == most else f"{least} to {most} (at {point.batch} x {point.vocab:,})"
        count += " launch" if most == 1 else " launches"
        budget = "" if granted is None else f"; the budget of such a rule is {granted}"
        advice = ": combine operations, or use lpkit.kernels" if granted is not None and most > granted else ""
        step = "a step in which no request comes or goes"
        lines.append(f"{host.upper()}: {count} on a GPU in {step}{budget}{advice}.")
    return lines


def _predictions(target: TargetBench) -> list[str]:
    """What the traffic of the target's kernels lets one expect at the largest size on each host, and what it took."""
    found = {}
    for point in sorted(target.points, key=lambda point: point.logits_bytes):
        for side in point.sides:
            if side.predicted and side.gpu:
                seen, size = side.predicted, f"{point.batch} x {point.vocab:,}"
                least, most, took = (seconds(value) for value in (seen.least, seen.most, side.gpu.median))
                found[side.host] = (
                    f"{side.host.upper()}: the memory that its kernels move takes the GPU {least} to {most} at {size}, "
                    f"at the speed of one read and write of the logits; it worked {took}."
                )
    return list(found.values())


def _notes(target: TargetBench) -> list[str]:
    found = list(target.notes)
    if not any(side.acted for point in target.points for side in point.sides if side.kind == "target"):
        found.append("With this case the processor changed no logit: these are costs of requests that do not use it.")
    for point in target.points:
        for side in point.sides:
            if side.problem and side.kind != "target":
                found.append(f"{point.batch} x {point.vocab:,}: {side.name}: {side.problem}")
    return found


def duration(times: Times | None) -> str:
    """Three digits and a unit."""
    if times is None:
        return "-"
    return seconds(times.median)


def ratio(value: float | None) -> str:
    """``1.24x``."""
    return "-" if value is None else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def data(size: float | None) -> str:
    """Bytes with a unit."""
    if size is None:
        return "?"
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
