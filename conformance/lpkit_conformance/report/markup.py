"""HTML that is built, not pasted: every text that goes in is escaped on the way out."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lpkit_conformance.report.xml_text import xml_text

Child = str | ET.Element | None


def element(tag: str, *children: Child, **attributes: str) -> ET.Element:
    """An element; ``class_`` and the like lose their underscore, empty attributes and None are left out."""
    found = ET.Element(tag, {name.rstrip("_").replace("_", "-"): xml_text(v) for name, v in attributes.items() if v})
    return extend(found, *children)


def extend(parent: ET.Element, *children: Child) -> ET.Element:
    """``parent`` with more children."""
    for child in children:
        if isinstance(child, ET.Element):
            parent.append(child)
        elif child and len(parent):
            parent[-1].tail = (parent[-1].tail or "") + xml_text(child)
        elif child:
            parent.text = (parent.text or "") + xml_text(child)
    return parent


def page(head: list[ET.Element], body: list[ET.Element]) -> str:
    """A whole page, as text."""
    root = element("html", element("head", *head), element("body", *body), lang="en")
    return f"<!doctype html>\n{ET.tostring(root, encoding='unicode', method='html')}\n"
