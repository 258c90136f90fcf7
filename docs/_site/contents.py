"""The navigation of the site is the links of its index pages, in their order: no page needs a directive for it."""

from __future__ import annotations

import posixpath
import re

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([\w./-]+)\.md\)")
BELOW = {"checks": "reference/index"}
"""Folders whose index page another page than the root's has in its contents."""


def contents(docname: str, text: str) -> list[str]:
    """The pages below an index page: those of its folder that it links, and the index pages of folders below it."""
    folder = posixpath.dirname(docname)
    linked = [posixpath.normpath(posixpath.join(folder, target)) for target in LINK.findall(text)]
    return [name for name in dict.fromkeys(linked) if name != docname and is_below(name, docname)]


def is_below(name: str, index: str) -> bool:
    folder, page = posixpath.split(name)
    if page == "index":
        return BELOW.get(folder, posixpath.join(posixpath.dirname(folder), "index")) == index
    return folder == posixpath.dirname(index)


def add_contents(_: Sphinx, docname: str, source: list[str]) -> None:
    if posixpath.basename(docname) == "index" and (names := contents(docname, source[0])):
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *(f"/{name}" for name in names), "```", ""])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True}
