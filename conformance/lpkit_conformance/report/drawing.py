"""The batch of a finding as an SVG drawing: rows by steps, a band of colour per request, moves and marks.

The content comes from a finding's ``timeline``; colours come from ``drawing.css``, for light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

from lpkit_conformance.report.markup import add, as_file, label, text_of

LEFT, COLUMN, ROW = 58, 104, 36
IDLE = 44
"""Width of a step without tokens."""
CELL, GAP = 26, 24
"""Height of a band, and what is free between the bands of two steps."""
LINE = 15
MOST_EVENTS = 4
"""Lines above a step."""
HUES = 8

EVENTS = {
    "arrive": ("arrives", "arrive"),
    "finish": ("finishes", "finish"),
    "preempt": ("preempted", "preempted"),
    "resume": ("resumes", "resume"),
}
"""Words for the event of one request, and of several."""


@dataclass(frozen=True)
class _StepColumn:
    """A step, or a run of equal steps.

    Attributes:
        cells: the row of a request by position.
        gone: what ends a request right before the step, by request.
        start, end: of the bands in it.
    """

    label: str
    step: Mapping[str, Any]
    cells: dict[int, Mapping[str, Any]]
    gone: dict[str, str]
    left: float
    width: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def start(self) -> float:
        return self.left + GAP / 2

    @property
    def end(self) -> float:
        return self.right - GAP / 2

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def idle(self) -> bool:
        return bool(self.step["kind"] == "idle")


def style() -> str:
    """The colours of drawings, for a page that holds some."""
    return (files(__package__) / "drawing.css").read_text(encoding="utf-8")


def svg_file(timeline: Mapping[str, Any], title: str) -> str:
    """A drawing with its own colours, as a file."""
    return as_file(drawing(timeline, title), style())


def drawing(timeline: Mapping[str, Any], title: str) -> ET.Element:
    """An ``svg`` element, for a page with :func:`style`."""
    return _Drawing(timeline, title).element()


class _Drawing:
    def __init__(self, timeline: Mapping[str, Any], title: str) -> None:
        self.timeline = timeline
        self.unit = timeline["unit"]
        self.differs = timeline["differs"] or {}
        self.raises = (timeline["raises"] or {}).get("step")
        self.requests = {item["id"]: item for item in timeline["requests"]}
        users = {name: f"hue{number % HUES}" for number, name in enumerate(self.requests)}
        self.colours = {name: users[name] if item["plugin"] else "plain" for name, item in self.requests.items()}
        self.columns = list(_columns(timeline["steps"], self.wrong_steps))
        used = sorted({position for column in self.columns for position in column.cells})
        self.lines = {position: number for number, position in enumerate(used)}
        self.events = [_event_lines(column.step["events"], self.unit) for column in self.columns]
        self.top = LINE * max((len(lines) for lines in self.events), default=0) + 12
        self.bottom = self.top + 22 + ROW * len(self.lines)
        self.legend: dict[str, str] = {}
        self.root = ET.Element("svg", {"class": "timeline", "role": "img"})
        text_of(self.root, "title", title)

    @property
    def wrong_steps(self) -> set[Any]:
        return {self.differs.get("step"), self.raises}

    def element(self) -> ET.Element:
        right = self.columns[-1].right if self.columns else LEFT
        self._tracks(right)
        for column, events in zip(self.columns, self.events, strict=True):
            self._column(column, events)
        for request in self.requests:
            self._bands(request)
        for column in self.columns:
            self._mark(column)
        height = self._legend()
        width = max(right + 8, LEFT + 300 if self.legend else 0)
        self.root.attrib |= {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
        return self.root

    def _y(self, position: int) -> float:
        """Middle of a row or slot."""
        return self.top + 22 + ROW * (self.lines[position] + 0.5)

    def _tracks(self, right: float) -> None:
        if not self.columns:
            return
        label(self.root, "axis", 4, self.top + 12, "step")
        for before, position in pairwise((min(self.lines, default=0) - 1, *self.lines)):
            y = self._y(position)
            if position > before + 1:
                label(self.root, "axis", 14, y - ROW / 2 + 4, "\u22ee")
            add(self.root, "line", "track", x1=LEFT, y1=y, x2=right, y2=y)
            label(self.root, "axis", 4, y + 4, f"{self.unit} {position}")

    def _column(self, column: _StepColumn, events: Sequence[str]) -> None:
        for number, line in enumerate(events, 1 - len(events)):
            label(self.root, "event", column.middle, self.top - 6 + LINE * number, line)
        kind = "step wrong" if column.step["step"] in self.wrong_steps else "step"
        label(self.root, kind, column.middle, self.top + 12, column.label)
        if column.idle:
            y = self.top + 22
            add(self.root, "rect", "idle", x=column.left, y=y, width=column.width, height=self.bottom - y)
            self.legend["a step without tokens: state is updated, apply is not called"] = "idle"

    def _bands(self, request: str) -> None:
        """Draw a band per stay of a request in a row, and the connections between stays."""
        colour = self.colours[request]
        stays = list(self._stays(request))
        for (source, _, last), (target, first, _) in pairwise(stays):
            x1, x2 = self.columns[last].end, self.columns[first].start
            y1, y2 = self._y(source), self._y(target)
            bend = min((x2 - x1) / 2, 60)
            path = f"M{x1:g} {y1:g} C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
            moves = first == last + 1
            add(self.root, "path", f"{'move' if moves else 'away'} {colour}", d=path)
            if moves:
                add(self.root, "path", f"head {colour}", d=f"M{x2 + 1:g} {y2:g} l-8 -5 v10 z")
        for position, first, last in stays:
            self._band(request, position, first, last)

    def _stays(self, request: str) -> Iterator[tuple[int, int, int]]:
        """(position, first column, last column); idle columns, which have no rows, belong to the stay around them."""
        stay: tuple[int, int, int] | None = None
        for number, column in enumerate(self.columns):
            here = next((position for position, row in column.cells.items() if row["request"] == request), None)
            if column.idle:
                if stay and request not in column.gone:
                    stay = (*stay[:2], number)
            elif stay and here == stay[0] and stay[2] == number - 1:
                stay = (*stay[:2], number)
            else:
                if stay:
                    yield stay
                stay = None if here is None else (here, number, number)
        if stay:
            yield stay

    def _band(self, request: str, position: int, first: int, last: int) -> None:
        colour, item = self.colours[request], self.requests[request]
        x, y, end = self.columns[first].start, self._y(position) - CELL / 2, self.columns[last].end
        band = add(self.root, "rect", f"band {colour}", x=x, y=y, width=end - x, height=CELL, rx=7)
        said = item["arguments"] or "with arguments"
        text_of(band, "title", f"{request}: {said if item['plugin'] else 'without the plugin'}")
        if not item["plugin"]:
            self.legend["a request that does not use the plugin"] = "band plain"
        for column in self.columns[first : last + 1]:
            if position in column.cells:
                self._cell(request, column.cells[position], column, y)
        gone = self.columns[last + 1].gone.get(request) if last + 1 < len(self.columns) else None
        for offset in {None: (), "finish": (4,), "preempt": (4, 9)}[gone]:  # a bar where it ends
            at = end + offset
            add(self.root, "line", f"ending {colour}", x1=at, y1=y + CELL / 2 - 9, x2=at, y2=y + CELL / 2 + 9)

    def _cell(self, request: str, row: Mapping[str, Any], column: _StepColumn, y: float) -> None:
        colour = self.colours[request]
        if row["prefill"]:
            width = column.end - column.start
            add(self.root, "rect", f"prefill {colour}", x=column.start, y=y, width=width, height=CELL, rx=7)
            self.legend["~ partial prefill: the row's result is discarded"] = ""
        drafts = 0 if row["prefill"] else column.step.get("drafts", 0)
        name = f"{request}~" if row["prefill"] else request
        x = column.middle - (7 * drafts / 2 + 2 if drafts else 0)
        label(self.root, f"name {colour}", x, y + CELL / 2 + 4, name)
        if drafts:
            self.legend["\u25cf an accepted draft, \u25cb a rejected one"] = ""
        for number in range(drafts):
            kind = "accepted" if number < column.step["accepted"] else "rejected"
            at = x + 4 * len(name) + 8 + 9 * number
            add(self.root, "circle", f"draft {kind} {colour}", cx=at, cy=y + CELL / 2, r=3)

    def _mark(self, column: _StepColumn) -> None:
        """Frame the step in which the plugin raises, or the row that differs."""
        if column.step["step"] == self.raises:
            left, top = column.left + 2, self.top + 20
            add(self.root, "rect", "culprit", x=left, y=top, width=column.width - 4, height=self.bottom - top + 2, rx=8)
            self.legend["the plugin raises in this step"] = "culprit"
        elif column.step["step"] == self.differs.get("step") and self.differs["position"] in column.cells:
            x, y = column.start - 4, self._y(self.differs["position"]) - CELL / 2
            width = column.end + 4 - x
            add(self.root, "rect", "culprit", x=x, y=y - 4, width=width, height=CELL + 8, rx=10)
            add(self.root, "circle", "badge", cx=x + width - 3, cy=y - 2, r=8)
            label(self.root, "badge", x + width - 3, y + 2.5, "!")
            self.legend["the row that differs from the request alone"] = "culprit"

    def _legend(self) -> float:
        """Explain marks and colours; returns the height of the drawing."""
        for name, count in self.timeline["omitted"].items():
            if count:
                thing = "earlier steps" if name == "steps" else f"other {self.unit}s"
                self.legend[f"{count} {thing} are not shown"] = ""
        for number, (text, sample) in enumerate(self.legend.items()):
            y = self.bottom + 14 + 20 * number
            if sample:
                add(self.root, "rect", sample, x=LEFT, y=y, width=24, height=12, rx=4)
            label(self.root, "legend", LEFT + (32 if sample else 0), y + 10, text)
        return self.bottom + 10 + 20 * len(self.legend) + (6 if self.legend else 0)


def _columns(steps: Sequence[Mapping[str, Any]], alone: set[Any]) -> Iterator[_StepColumn]:
    """Return a column per step. Steps without events that equal the previous step share its column."""
    left = float(LEFT)
    groups: list[list[Mapping[str, Any]]] = []
    for step in steps:
        before = groups[-1][-1] if groups and not step["events"] else None
        if before and _looks(step) == _looks(before) and not {step["step"], before["step"]} & alone:
            groups[-1].append(step)
        else:
            groups.append([step])
    for group in groups:
        first, last = group[0], group[-1]["step"]
        label = str(first["step"]) if first["step"] == last else f"{first['step']}\u2013{last}"
        width = float(IDLE if first["kind"] == "idle" and not first["events"] else COLUMN)
        gone = {event["request"]: event["op"] for event in first["events"] if event["op"] in ("finish", "preempt")}
        yield _StepColumn(label, first, {row["position"]: row for row in first["rows"]}, gone, left, width)
        left += width


def _looks(step: Mapping[str, Any]) -> Any:
    rows = [(row["position"], row["request"], row["prefill"]) for row in step["rows"]]
    return step["kind"], step.get("drafts"), step.get("accepted"), rows


def _event_lines(events: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    """Return the events before a step; several of one kind are counted. Swaps concern rows only: slots do not move."""
    kinds: dict[str, list[str]] = {}
    lines = []
    for event in events:
        op = event["op"]
        if op != "swap":
            lines.append(f"{event['request']} {EVENTS[op][0]}")
        elif unit == "row":
            lines.append(f"rows {event['first']} \u21c4 {event['second']}")
        else:
            continue
        kinds.setdefault(op, []).append(lines[-1])
    if len(lines) <= MOST_EVENTS:
        return lines
    many = {"swap": "swaps", **{op: words[1] for op, words in EVENTS.items()}}
    return [same[0] if len(same) == 1 else f"{len(same)} {many[op]}" for op, same in kinds.items()]
