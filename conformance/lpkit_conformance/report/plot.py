"""Curves on logarithmic axes as SVG: time per step against the number of requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from lpkit_conformance.report.drawing import HUES, style
from lpkit_conformance.report.markup import add, as_file, label, text_of

LEFT, WIDTH, HEIGHT = 64.0, 400.0, 230.0
"""Room for the labels of the y axis, and the size of a panel's field."""
HEAD, FOOT, LINE = 26.0, 44.0, 19.0
LEGEND_NAME = 60
"""Characters of a curve's name that the legend shows."""
MARKS = (1, 2, 5)

SHEET = """
.timeline .panel { fill: none; stroke: var(--line); stroke-width: 1; }
.timeline .grid { stroke: var(--line); stroke-width: 1; }
.timeline .heading { font-size: 13px; font-weight: 600; }
.timeline .right { text-anchor: end; }
.timeline .centred { text-anchor: middle; }
.timeline .curve { fill: none; stroke: hsl(var(--hue) var(--edge-s) var(--edge-l)); stroke-width: 2; }
.timeline .dot { fill: hsl(var(--hue) var(--edge-s) var(--edge-l)); }
.timeline .curve.floor { stroke: var(--soft); stroke-dasharray: 5 4; }
.timeline .dot.floor { fill: var(--soft); }
.timeline .curve.alternative { stroke-dasharray: 8 3; }
"""


@dataclass(frozen=True)
class Curve:
    """``points``: (requests, seconds), both above 0. ``kind``: ``target``, ``alternative`` or ``floor``."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Panel:
    title: str
    curves: tuple[Curve, ...]


def plot(title: str, panels: Sequence[Panel]) -> str:
    """The panels below each other, each with its legend, as the text of a file."""
    root = ET.Element("svg", {"class": "timeline", "role": "img"})
    text_of(root, "title", title)
    top = 0.0
    for panel in panels:
        top = _panel(root, panel, top) + 24
    root.set("viewBox", f"0 0 {LEFT + WIDTH + 12:g} {max(top - 24, 20):g}")
    return as_file(root, style() + SHEET)


class _Axis:
    """Map a value to a position on a line, by its logarithm; the axis spans at least one power of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(0.08, (1 - (high - low)) / 2)
        self.low, self.high = low - room, high + room
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def marks(self) -> list[float]:
        """Round values on the axis: powers of ten where there are several, else some between them too."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1,), MARKS):
            values = [step * 10.0**power for power in powers for step in steps]
            inside = [value for value in values if self.low <= math.log10(value) <= self.high]
            if len(inside) >= 3:
                return inside
        return inside


def _panel(root: ET.Element, panel: Panel, top: float) -> float:
    """Draw one panel; return the vertical position of its end."""
    label(root, "heading", 0, top + 14, panel.title)
    points = [point for curve in panel.curves for point in curve.points]
    upper, lower = top + HEAD, top + HEAD + HEIGHT
    add(root, "rect", "panel", x=LEFT, y=upper, width=WIDTH, height=HEIGHT)
    if not points:
        label(root, "legend", LEFT + 12, upper + 24, "nothing was measured")
        return lower
    x, y = _Axis([p[0] for p in points], LEFT, LEFT + WIDTH), _Axis([p[1] for p in points], lower, upper)
    for value in y.marks():
        add(root, "line", "grid", x1=LEFT, y1=y(value), x2=LEFT + WIDTH, y2=y(value))
        label(root, "axis right", LEFT - 6, y(value) + 4, seconds(value))
    for requests in sorted({p[0] for p in points}):
        add(root, "line", "grid", x1=x(requests), y1=lower, x2=x(requests), y2=lower + 5)
        label(root, "axis centred", x(requests), lower + 18, f"{requests:g}")
    label(root, "axis centred", LEFT + WIDTH / 2, lower + 34, "requests in the batch")
    for number, curve in enumerate(panel.curves):
        kind = f"{curve.kind} hue{number % HUES}"
        places = [(x(requests), y(time)) for requests, time in curve.points]
        line = add(root, "polyline", f"curve {kind}", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in places))
        text_of(line, "title", curve.name)
        for (a, b), (requests, time) in zip(places, curve.points, strict=True):
            dot = add(root, "circle", f"dot {kind}", cx=round(a, 1), cy=round(b, 1), r=3)
            text_of(dot, "title", f"{curve.name}: {requests:g} requests, {seconds(time)}")
        row = lower + FOOT + LINE * number
        add(root, "line", f"curve {kind}", x1=LEFT, y1=row + 5, x2=LEFT + 26, y2=row + 5)
        name = curve.name if len(curve.name) <= LEGEND_NAME else f"…{curve.name[1 - LEGEND_NAME :]}"
        label(root, "legend", LEFT + 34, row + 9, name)
    return lower + FOOT + LINE * len(panel.curves)


def seconds(value: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if value < 999.5 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"
