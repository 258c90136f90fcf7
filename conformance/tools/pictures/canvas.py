"""What the pictures share: an ``svg`` element in the colours of the drawings in reports, and text on it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lpkit_conformance.report.drawing import style
from lpkit_conformance.report.svg import as_file, text_of

SHEET = """
.timeline .heading { font-size: 14px; font-weight: 600; }
.timeline .small { font-size: 11px; fill: var(--soft); }
.timeline .centred { text-anchor: middle; }
.timeline .strong { font-weight: 600; }
.timeline .box { fill: none; stroke: var(--line); stroke-width: 1.5; }
.timeline .done { fill: var(--idle); stroke: var(--soft); stroke-width: 1; }
.timeline .guess { stroke-dasharray: 3 2; }
.timeline .rejected { fill: none; stroke: var(--wrong); stroke-width: 1.5; stroke-dasharray: 3 2; }
.timeline .flow { stroke: var(--soft); stroke-width: 1.5; fill: none; }
"""


def canvas(title: str) -> ET.Element:
    """An empty picture; ``title`` is read out where it cannot be seen."""
    root = ET.Element("svg", {"class": "timeline", "role": "img"})
    text_of(root, "title", title)
    return root


def finished(root: ET.Element, width: float, height: float) -> str:
    """The picture as a file."""
    root.set("viewBox", f"0 0 {width:g} {height:g}")
    return as_file(root, style() + SHEET)


def place(root: ET.Element, inner: ET.Element, y: float) -> tuple[float, float]:
    """Put a whole drawing into a picture; returns its width and height."""
    inner.set("y", f"{y:g}")
    root.append(inner)
    return float(inner.attrib["width"]), float(inner.attrib["height"])
