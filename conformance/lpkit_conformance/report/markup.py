"""Pages from a template, pictures from elements; every text that goes into either is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any
from xml.etree import ElementTree as ET

MARGIN = 10
"""Around a picture that is a file: it has its own background, since a page's may have other colours."""

_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_TAG = re.compile(r"\{\{([#^])([\w.]+)\}\}(.*?)\{\{/\2\}\}|\{\{([\w.]+)\}\}", re.S)


def xml_text(value: str) -> str:
    """``value`` without the characters that XML cannot hold, which a plugin's messages may have."""
    return _NOT_XML.sub("?", value)


# -- pages -------------------------------------------------------------------------------------------------------


class Markup(str):
    """A text that is HTML already."""


def escaped(value: object) -> Markup:
    """``value`` as HTML."""
    return value if isinstance(value, Markup) else Markup(escape(xml_text(str(value))))


def embedded(data: object) -> Markup:
    """Return data as JSON for a ``script`` element of a page."""
    return Markup(json.dumps(data).replace("<", "\\u003c"))


def fill(template: str, *scopes: object) -> Markup:
    """Fill a template in a subset of Mustache.

    ``{{name}}`` is a value, ``{{.}}`` the innermost value. ``{{#name}}...{{/name}}`` is repeated for each item of a
    list, or appears once if the value is true. ``{{^name}}...{{/name}}`` appears if it is false. A section cannot
    contain another section of its name.

    Args:
        scopes: mappings in which names are looked up, the innermost first.

    Raises:
        KeyError: a name is in no scope.
    """

    def filled(tag: re.Match[str]) -> str:
        mark, section, inside, name = tag.groups()
        value = _value(section or name, scopes)
        if name:
            return escaped(value)
        if mark == "^":
            return "" if value else fill(inside, *scopes)
        items = value if isinstance(value, list) else [value] if value else []
        return "".join(fill(inside, item, *scopes) for item in items)

    return Markup(_TAG.sub(filled, template))


def _value(name: str, scopes: tuple[object, ...]) -> object:
    if name == ".":
        return scopes[0]
    for scope in scopes:
        if isinstance(scope, Mapping) and name in scope:
            return scope[name]
    raise KeyError(name)


# -- pictures ----------------------------------------------------------------------------------------------------


def add(root: ET.Element, tag: str, kind: str, **attributes: Any) -> ET.Element:
    """Add an element of class ``kind``; numbers become short text."""
    values = {name: f"{value:g}" if isinstance(value, int | float) else value for name, value in attributes.items()}
    return ET.SubElement(root, tag, {"class": kind, **values})


def label(root: ET.Element, kind: str, x: float, y: float, text: str) -> ET.Element:
    """Add a line of text; ``y`` is its base line."""
    element = text_of(root, "text", text)
    element.attrib.update({"class": kind, "x": f"{x:g}", "y": f"{y:g}"})
    return element


def text_of(root: ET.Element, tag: str, text: str) -> ET.Element:
    """Add an element that holds a text."""
    element = ET.SubElement(root, tag)
    element.text = xml_text(text)
    return element


def in_page(root: ET.Element) -> Markup:
    """A picture as part of a page that has its style sheet."""
    return Markup(ET.tostring(root, encoding="unicode", method="html"))


def as_file(root: ET.Element, sheet: str) -> str:
    """A picture as a file, with its style sheet and a background of its own (class ``card``)."""
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
