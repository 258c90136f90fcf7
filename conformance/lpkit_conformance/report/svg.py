"""SVG as elements: what drawings and plots are made of, and how they become files."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from lpkit_conformance.report.xml_text import xml_text

MARGIN = 10
"""Around a picture that is a file: it brings its own background, since a page's may have other colours."""


def add(root: ET.Element, tag: str, kind: str, **attributes: Any) -> ET.Element:
    """A new element of class ``kind``; numbers become short text."""
    values = {name: f"{value:g}" if isinstance(value, int | float) else value for name, value in attributes.items()}
    return ET.SubElement(root, tag, {"class": kind, **values})


def label(root: ET.Element, kind: str, x: float, y: float, text: str) -> ET.Element:
    """A line of text; ``y`` is its base line."""
    element = text_of(root, "text", text)
    element.attrib.update({"class": kind, "x": f"{x:g}", "y": f"{y:g}"})
    return element


def text_of(root: ET.Element, tag: str, text: str) -> ET.Element:
    """A new element that holds a text."""
    element = ET.SubElement(root, tag)
    element.text = xml_text(text)
    return element


def as_file(root: ET.Element, sheet: str) -> str:
    """A picture with its style sheet and a background of its own (class ``card``), as the text of a file."""
    left, top, width, height = (float(number) for number in root.attrib["viewBox"].split())
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    box = (left - MARGIN, top - MARGIN, width, height)
    root.attrib.update({"viewBox": " ".join(f"{number:g}" for number in box)})
    root.attrib.update({"width": f"{width:g}", "height": f"{height:g}"})
    x, y = (f"{number:g}" for number in box[:2])
    card = ET.Element("rect", {"class": "card", "x": x, "y": y, "width": f"{width:g}", "height": f"{height:g}"})
    card.set("rx", "8")
    style = ET.Element("style")
    style.text = sheet
    root.set("xmlns", "http://www.w3.org/2000/svg")
    root.insert(1, style)
    root.insert(2, card)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"
