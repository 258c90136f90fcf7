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

PAST = {"arrive": "arrives", "finish": "finishes", "preempt": "preempted", "resume": "resumes"}
MANY = {"arrive": "arrive", "finish": "finish", "preempt": "preempted", "resume": "resume"}


@dataclass(frozen=True)
class _Column:
    """A step, or a run of equal steps; ``cells``: request by position."""

    label: str
    first: Mapping[str, Any]
    last: int
    cells: dict[int, Mapping[str, Any]]
    left: float
    width: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def idle(self) -> bool:
        return bool(self.first["kind"] == "idle")


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
        self.timeline, self.title = timeline, title
        self.unit = timeline["unit"]
        self.differs = timeline["differs"] or {}
        self.raises = (timeline["raises"] or {}).get("step")
        self.requests = {item["id"]: item for item in timeline["requests"]}
        self.hues = {name: number % HUES for number, name in enumerate(self.requests)}
        self.columns = list(_columns(timeline["steps"], {self.differs.get("step"), self.raises}))
        used = sorted({position for column in self.columns for position in column.cells})
        self.lines = {position: number for number, position in enumerate(used)}
        self.events = [_event_lines(column.first["events"], self.unit) for column in self.columns]
        self.top = LINE * max((len(lines) for lines in self.events), default=0) + 12
        self.legend: dict[str, str] = {}

    def element(self) -> ET.Element:
        root = ET.Element("svg", {"class": "timeline", "role": "img"})
        text_of(root, "title", self.title)
        bottom = self.top + 22 + ROW * len(self.lines)
        self._tracks(root)
        for column, events in zip(self.columns, self.events, strict=True):
            self._column(root, column, events, bottom)
        self._bands(root)
        self._marks(root, bottom)
        omitted = self.timeline["omitted"]
        if omitted["steps"]:
            self.legend[f"{omitted['steps']} earlier steps are not shown"] = ""
        if omitted["positions"]:
            self.legend[f"{omitted['positions']} other {self.unit}s are not shown"] = ""
        for number, (text, sample) in enumerate(self.legend.items()):
            y = bottom + 14 + 20 * number
            if sample:
                add(root, "rect", sample, x=LEFT, y=y, width=24, height=12, rx=4)
            label(root, "legend", LEFT + (32 if sample else 0), y + 10, text)
        right = self.columns[-1].left + self.columns[-1].width if self.columns else LEFT
        width = max(right + 8, LEFT + 300 if self.legend else 0)
        height = bottom + 10 + 20 * len(self.legend) + (6 if self.legend else 0)
        for name, value in {"viewBox": f"0 0 {width:g} {height:g}", "width": width, "height": height}.items():
            root.set(name, value if isinstance(value, str) else f"{value:g}")
        return root

    def _y(self, position: int) -> float:
        """Middle of a row or slot."""
        return self.top + 22 + ROW * (self.lines[position] + 0.5)

    def _tracks(self, root: ET.Element) -> None:
        if not self.columns:
            return
        end = self.columns[-1].left + self.columns[-1].width
        label(root, "axis", 4, self.top + 12, "step")
        for before, position in pairwise((min(self.lines, default=0) - 1, *self.lines)):
            y = self._y(position)
            if position > before + 1:
                label(root, "axis", 14, y - ROW / 2 + 4, "\u22ee")
            add(root, "line", "track", x1=LEFT, y1=y, x2=end, y2=y)
            label(root, "axis", 4, y + 4, f"{self.unit} {position}")

    def _column(self, root: ET.Element, column: _Column, events: Sequence[str], bottom: float) -> None:
        wrong = column.first["step"] in (self.differs.get("step"), self.raises)
        for number, line in enumerate(events):
            y = self.top - 6 - LINE * (len(events) - 1 - number)
            label(root, "event", column.middle, y, line)
        label(root, "step wrong" if wrong else "step", column.middle, self.top + 12, column.label)
        if column.idle:
            add(root, "rect", "idle", x=column.left, y=self.top + 22, width=column.width, height=bottom - self.top - 22)
            self.legend["a step without tokens: state is updated, apply is not called"] = "idle"

    def _bands(self, root: ET.Element) -> None:
        """Draw a band per stay of a request in a row, and the connections between stays."""
        for request in self.requests:
            stays = list(self._stays(request))
            for before, after in pairwise(stays):
                away = after[1] - before[2] > 1
                x1, x2 = self._right(before[2]), self._left(after[1])
                y1, y2 = self._y(before[0]), self._y(after[0])
                bend = min((x2 - x1) / 2, 60)
                path = f"M{x1:g} {y1:g} C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
                kind = "away" if away else "move"
                add(root, "path", f"{kind} {self._colour(request)}", d=path)
                if not away:
                    head = f"M{x2 + 1:g} {y2:g} l-8 -5 v10 z"
                    add(root, "path", f"head {self._colour(request)}", d=head)
            for position, start, end in stays:
                self._band(root, request, position, start, end)

    def _stays(self, request: str) -> Iterator[tuple[int, int, int]]:
        """(position, first column, last column), the columns without idle ones between them."""
        open_: tuple[int, int, int] | None = None
        for number, column in enumerate(self.columns):
            if column.idle:
                if open_ and self._still_there(request, number):
                    open_ = (open_[0], open_[1], number)
                continue
            here = next((position for position, row in column.cells.items() if row["request"] == request), None)
            if open_ and here == open_[0] and open_[2] == number - 1:
                open_ = (here, open_[1], number)
                continue
            if open_:
                yield open_
            open_ = None if here is None else (here, number, number)
        if open_:
            yield open_

    def _still_there(self, request: str, number: int) -> bool:
        """True if the request is in the batch during an idle step, which records no rows."""
        gone = [event for event in self.columns[number].first["events"] if event["op"] in ("finish", "preempt")]
        return all(event["request"] != request for event in gone)

    def _band(self, root: ET.Element, request: str, position: int, start: int, end: int) -> None:
        x, y = self._left(start), self._y(position) - CELL / 2
        band = add(
            root, "rect", f"band {self._colour(request)}", x=x, y=y, width=self._right(end) - x, height=CELL, rx=7
        )
        if not self.requests[request]["plugin"]:
            self.legend["a request that does not use the plugin"] = "band plain"
        text_of(band, "title", self._tooltip(request))
        for column in self.columns[start : end + 1]:
            row = column.cells.get(position)
            if row is None:
                continue
            self._cell(root, request, row, column, y)
        if end + 1 < len(self.columns):
            gone = [event["op"] for event in self.columns[end + 1].first["events"] if event.get("request") == request]
            if "finish" in gone or "preempt" in gone:
                kind = "finish" if "finish" in gone else "preempt"
                self._ending(root, kind, self._colour(request), self._right(end), y + CELL / 2)

    def _ending(self, root: ET.Element, kind: str, colour: str, x: float, y: float) -> None:
        """A bar where a request ends, two where it is preempted."""
        for offset in (4,) if kind == "finish" else (4, 9):
            add(root, "line", f"ending {colour}", x1=x + offset, y1=y - 9, x2=x + offset, y2=y + 9)

    def _cell(self, root: ET.Element, request: str, row: Mapping[str, Any], column: _Column, y: float) -> None:
        colour = self._colour(request)
        if row["prefill"]:
            x = column.left + GAP / 2
            add(root, "rect", f"prefill {colour}", x=x, y=y, width=column.width - GAP, height=CELL, rx=7)
            self.legend["~ partial prefill: the row's result is discarded"] = ""
        drafts, accepted = column.first.get("drafts", 0), column.first.get("accepted", 0)
        shift = -7 * drafts / 2 - 2 if drafts and not row["prefill"] else 0
        name = f"{request}~" if row["prefill"] else request
        label(root, f"name {colour}", column.middle + shift, y + CELL / 2 + 4, name)
        if shift:
            self.legend["\u25cf an accepted draft, \u25cb a rejected one"] = ""
            x = column.middle + shift + 4 * len(name) + 8
            for number in range(drafts):
                kind = "accepted" if number < accepted else "rejected"
                add(root, "circle", f"draft {kind} {colour}", cx=x + 9 * number, cy=y + CELL / 2, r=3)

    def _marks(self, root: ET.Element, bottom: float) -> None:
        """The row that differs, or the step in which the plugin raises."""
        for column in self.columns:
            if column.first["step"] == self.raises:
                x, y = column.left + 2, self.top + 20
                add(root, "rect", "culprit", x=x, y=y, width=column.width - 4, height=bottom - y + 2, rx=8)
                self.legend["the plugin raises in this step"] = "culprit"
            elif column.first["step"] == self.differs.get("step"):
                self._mark(root, column)

    def _mark(self, root: ET.Element, column: _Column) -> None:
        if self.differs["position"] not in column.cells:
            return
        y = self._y(self.differs["position"])
        x, width = column.left + GAP / 2 - 4, column.width - GAP + 8
        add(root, "rect", "culprit", x=x, y=y - CELL / 2 - 4, width=width, height=CELL + 8, rx=10)
        add(root, "circle", "badge", cx=x + width - 3, cy=y - CELL / 2 - 2, r=8)
        label(root, "badge", x + width - 3, y - CELL / 2 + 2.5, "!")
        self.legend["the row that differs from the request alone"] = "culprit"

    def _colour(self, request: str) -> str:
        return f"hue{self.hues[request]}" if self.requests[request]["plugin"] else "plain"

    def _tooltip(self, request: str) -> str:
        item = self.requests[request]
        return (
            f"{request}: {item['arguments'] or 'with arguments'}"
            if item["plugin"]
            else f"{request}: without the plugin"
        )

    def _left(self, column: int) -> float:
        return self.columns[column].left + GAP / 2

    def _right(self, column: int) -> float:
        return self.columns[column].left + self.columns[column].width - GAP / 2


def _columns(steps: Sequence[Mapping[str, Any]], alone: set[Any]) -> Iterator[_Column]:
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
        idle = first["kind"] == "idle"
        label = str(first["step"]) if first["step"] == last else f"{first['step']}\u2013{last}"
        width = float(IDLE if idle and not first["events"] else COLUMN)
        yield _Column(label, first, last, {row["position"]: row for row in first["rows"]}, left, width)
        left += width


def _looks(step: Mapping[str, Any]) -> Any:
    rows = [(row["position"], row["request"], row["prefill"]) for row in step["rows"]]
    return step["kind"], step.get("drafts"), step.get("accepted"), rows


def _event_lines(events: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    """Return the events before a step; several of one kind are counted. Swaps concern rows only: slots do not move."""
    events = [event for event in events if unit == "row" or event["op"] != "swap"]
    lines = [
        f"rows {event['first']} \u21c4 {event['second']}"
        if event["op"] == "swap"
        else f"{event['request']} {PAST[event['op']]}"
        for event in events
    ]
    if len(lines) <= MOST_EVENTS:
        return lines
    counts: dict[str, list[str]] = {}
    for event, line in zip(events, lines, strict=True):
        counts.setdefault(event["op"], []).append(line)
    return [
        same[0] if len(same) == 1 else f"{len(same)} swaps" if op == "swap" else f"{len(same)} {MANY[op]}"
        for op, same in counts.items()
    ]
