"""Bounds of the caches and tables in a class's code, and the fields of a request that it reads."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from lpkit_conformance.instruments.author_lines import home_of, is_authors, only_looks, syntax_of

LEAST, MOST = 256, 4096
"""Numbers that count as bounds: smaller tables are full in any case, and larger ones take too long to fill."""

KEYWORDS = ("maxsize", "maxlen")
"""Arguments that bound a container."""

ALIASES = 3
"""Assignments from one name to another that are followed."""


class Bound(NamedTuple):
    """The largest number that bounds a container in a class's code, and ``file:line`` of that; 0 if none does."""

    entries: int = 0
    line: str = ""


def largest_bound(cls: Any) -> Bound:
    """Read the code of a class, of its bases, and of the functions and classes of their files that they name."""
    parts = [*_parts_of(cls)]
    assigned = _assigned([part for _, part in parts])
    module = vars(sys.modules.get(getattr(cls, "__module__", "")) or object)

    def numbers(node: ast.expr, aliases: int = ALIASES) -> Iterator[int]:
        names = {"self": cls, "cls": cls}
        if not only_looks(node, ()):
            return
        try:
            value = eval(compile(ast.Expression(node), "", "eval"), {**module, **names})
        except Exception:  # it needs an instance, or a call
            value = None
        if type(value) is int:
            yield from [value] if LEAST <= value <= MOST else []
        elif aliases and _name_of(node):
            yield from (number for other in assigned[_name_of(node)] for number in numbers(other, aliases - 1))

    nodes = [(file, node) for file, part in parts for node in ast.walk(part)]
    bounding = [(f"{file}:{bound.lineno}", bound) for file, node in nodes for bound in _bounds(node)]
    return max((Bound(number, line) for line, bound in bounding for number in numbers(bound)), default=Bound())


def fields_read(cls: Any, fields: Collection[str]) -> list[str]:
    """Return the fields that the code of a class reads as an attribute of anything but itself, or names in a text."""
    nodes = [node for _, part in _parts_of(cls) for node in ast.walk(part)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and _name_of(node.value) != "self"]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return [name for name in fields if name in texts or name in {node.attr for node in attributes}]


def _bounds(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what bounds a container in an expression: compared with its length, given to a cache, or a ring's size."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Call) and _name_of(side.func) == "len" for side in sides):
            yield from sides
    elif isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS)
        name = _name_of(node.func).lower()
        if "cache" in name or "lru" in name or name == "deque":
            yield from node.args
    elif isinstance(node, ast.BinOp) and (isinstance(node.op, ast.Mod) or isinstance(node.left, ast.List)):
        yield node.right


def _name_of(node: ast.AST) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _assigned(parts: list[ast.stmt]) -> defaultdict[str, list[ast.expr]]:
    """Return the values that are assigned to each name or attribute, and defaults of arguments."""
    values: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for node in (node for part in parts for node in ast.walk(part)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                values[_name_of(target)].append(node.value)
        elif isinstance(node, ast.arguments):
            with_default = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
            for arg, default in zip(
                [*with_default, *node.kwonlyargs], [*node.defaults, *node.kw_defaults], strict=True
            ):
                values[arg.arg] += [default] if default is not None else []
    return values


def _parts_of(cls: Any) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the classes of a class's bases, and the functions and classes that they name, each with its file."""
    bases = [base for base in getattr(cls, "__mro__", ()) if is_authors(home_of(base))]
    for file in dict.fromkeys(map(home_of, bases)):
        named = {base.__name__ for base in bases if home_of(base) == file}
        rest = [part for part in syntax_of(file).body if hasattr(part, "name")]
        while reached := [part for part in rest if part.name in named]:
            yield from ((file, part) for part in reached)
            rest = [part for part in rest if part not in reached]
            named = {_name_of(node) for part in reached for node in ast.walk(part)}
