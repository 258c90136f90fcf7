"""Data that an author's function finds outside of its instance: in its module, its class, defaults or a closure."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

from lpkit_conformance.instruments.author_lines import syntax_of
from lpkit_conformance.instruments.trails import Seen


def containers_named(frame: FrameType) -> dict[str, Any]:
    """Return the containers of the module and of the class of ``self`` that a function names."""
    names, this = frame.f_code.co_names, frame.f_locals.get("self")
    values = {name: frame.f_globals[name] for name in names if name in frame.f_globals}
    for name in set(names) - getattr(this, "__dict__", {}).keys():
        owner = next((base for base in type(this).__mro__ if name in vars(base)), None)
        values |= {f"{owner.__name__}.{name}": vars(owner)[name]} if owner else {}
    return {name: value for name, value in values.items() if type(value) in (dict, list, set)}


def line_outside(seen: Seen, name: str) -> int:
    """Return the line of the function whose default this is, or the line around it that sets the variable; else 0.

    ``seen``: the first line of a call.
    """
    functions = [node for node in ast.walk(syntax_of(seen.file)) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno < seen.line <= (node.end_lineno or 0)]
    if not around:
        return 0
    given = around[-1].args
    if name in [item.arg for item in (*given.args[len(given.args) - len(given.defaults) :], *given.kwonlyargs)]:
        return around[-1].lineno
    sets = [part for outer in around[:-1] for part in outer.body if isinstance(part, ast.Assign)]
    return next((part.lineno for part in sets if name in map(ast.unparse, part.targets)), 0)
