"""Extension for autodoc: the SDK's public names are documented where users import them."""

from __future__ import annotations

import sys
from typing import Any

from docutils import nodes
from public_names import MADE_BY_ENGINES, MODULES, homes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import PycodeError
from sphinx.ext.autodoc.mock import mock
from sphinx.pycode import ModuleAnalyzer

HOMES: dict[str, str] = {}
"""The public name of each class and function, by the module that defines it."""

OTHERS = ("torch", "numpy", "pydantic", "typing", "collections", "pathlib", "importlib", "types", "re", "abc")
"""Packages whose names stand in signatures, without links: the build has no network."""


def look_up(app: Sphinx) -> None:
    """Import the SDK without what it computes with, as autodoc does."""
    with mock(app.config.autodoc_mock_imports):
        HOMES.update(homes())


def resolve(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element) -> Any:
    """Link a name in an annotation to its public name; other names stay text."""
    if node.get("refdomain") != "py":
        return None
    target = str(node.get("reftarget"))
    short = {name.rpartition(".")[2]: name for name in HOMES.values() if not name.startswith("lpkit.runtime")}
    home = HOMES.get(target) or short.get(target.rpartition(".")[2])
    domain = env.domains["py"]
    if home is not None and (home in domain.objects):
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, content)
    written = "refwarn" in node  # as a role in a docstring; others come from annotations and Raises
    return None if written and target.partition(".")[0] not in OTHERS else content


def hide_constructor(app: Sphinx, what: str, name: str, *rest: Any) -> tuple[str, None] | None:
    """Hide the constructor of classes that only engines construct."""
    return ("", None) if what == "class" and name in MADE_BY_ENGINES else None


def find_comment(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Find a constant's docstring in the module that defines it."""
    if what != "data" or name.rpartition(".")[0] not in MODULES:
        return
    for module in sorted(item for item in sys.modules if item.startswith("lpkit.")):
        try:
            analyzer = ModuleAnalyzer.for_module(module)
            analyzer.analyze()
        except PycodeError:
            continue
        if comment := analyzer.attr_docs.get(("", name.rpartition(".")[2])):
            lines[:] = comment
            return


def tidy_fields(app: Sphinx, doctree: nodes.document) -> None:
    """Replace Sphinx's two hyphens by a dash, and its heading *Variables* by *Attributes*."""
    for field in doctree.findall(nodes.field):
        for text in [*field.findall(nodes.Text)]:
            if text == " -- ":
                text.parent.replace(text, nodes.Text(" – "))  # noqa: RUF001
            elif text == "Variables" and isinstance(text.parent, nodes.field_name):
                text.parent.replace(text, nodes.Text("Attributes"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", look_up)
    app.connect("missing-reference", resolve)
    app.connect("doctree-read", tidy_fields)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("autodoc-process-docstring", find_comment)
    return {"parallel_read_safe": True}
