"""Links of the site: those to generated pages, which have an address of their own in git, and the navigation.

The navigation is the links of the index pages, in their order: no page needs a directive for it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container

from lpkit_conformance.results import DOCUMENTATION
from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([\w./-]+)\.md\)")
PUBLISHED = re.compile(rf"\]\({re.escape(DOCUMENTATION)}([\w/-]*?)/?(#[\w-]+)?\)")
"""A link to a page of the published site."""

BELOW = {"checks": "reference/index", "plugins": "reference/index"}
"""Folders whose index page another page than the root's has in its contents."""


def localized(text: str, pages: Container[str]) -> str:
    """The page with links to this build's pages in place of the published ones; links to unknown pages stay."""

    def local(match: re.Match[str]) -> str:
        name, anchor = match[1], match[2] or ""
        target = next((item for item in (name, posixpath.join(name, "index")) if item in pages), None)
        return match[0] if target is None else f"](/{target}.md{anchor})"

    return PUBLISHED.sub(local, text)


def contents(docname: str, text: str) -> list[str]:
    """The pages below an index page: those of its folder that it links, and the index pages of folders below it."""
    folder = posixpath.dirname(docname)
    linked = [posixpath.normpath(posixpath.join("/", folder, target))[1:] for target in LINK.findall(text)]
    return [name for name in dict.fromkeys(linked) if name != docname and is_below(name, docname)]


def is_below(name: str, index: str) -> bool:
    folder, page = posixpath.split(name)
    if page == "index":
        return BELOW.get(folder, posixpath.join(posixpath.dirname(folder), "index")) == index
    return folder == posixpath.dirname(index)


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = localized(source[0], app.env.found_docs)
    if posixpath.basename(docname) == "index" and (names := contents(docname, source[0])):
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *(f"/{name}" for name in names), "```", ""])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True}
