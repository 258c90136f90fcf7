"""Metadata of every check, without importing it: a command that only supervises a run needs no torch for it.

The metadata are read from the source: the classes of the checks state them as literals.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from lpkit_conformance.settings import hosts

Engine = Literal["reference", "vllm", "together"]

ROOMS: dict[str, Engine] = {"checks": "reference", "engine_checks": "vllm", "together": "together"}
"""The rooms of checks, and on what theirs run."""
_WANTED = ("code", "name", "tier", "hosts", "needs_action")


@dataclass(frozen=True)
class CheckEntry:
    """Metadata of one check, from its class."""

    code: str
    name: str
    title: str
    tier: str
    engine: Engine
    hosts: tuple[str, ...]
    needs_action: bool


@cache
def index() -> dict[str, CheckEntry]:
    """Every check by its code, in the order of the codes."""
    rooms = {
        engine: [item for file in sorted((Path(__file__).parent / room).glob("*.py")) for item in _classes(file)]
        for room, engine in ROOMS.items()
    }
    classes = {item.name: item for room in rooms.values() for item in room}
    found: dict[str, CheckEntry] = {}
    for engine, room in rooms.items():
        for item in room:
            if "code" in _literals(item):
                title = " ".join((ast.get_docstring(item) or "").partition("\n\n")[0].split())
                values = _inherited(item, classes)
                found[values["code"]] = CheckEntry(title=title.rstrip(".").replace("``", "`"), engine=engine, **values)
    return dict(sorted(found.items()))


def _classes(file: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (item for item in tree.body if isinstance(item, ast.ClassDef))


def _inherited(item: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, Any]:
    """Read the metadata of a class, with missing entries from its bases."""
    found: dict[str, Any] = {}
    for base in reversed(item.bases):
        if isinstance(base, ast.Name) and base.id in classes:
            found |= _inherited(classes[base.id], classes)
    return found | _literals(item)


def _literals(item: ast.ClassDef) -> dict[str, Any]:
    """``code, name = "LP201", "neighbours"``, ``needs_action: ClassVar[bool] = True`` and the like."""
    found: dict[str, Any] = {}
    for line in item.body:
        if (
            isinstance(line, ast.Assign)
            and isinstance(line.targets[0], ast.Tuple)
            and isinstance(line.value, ast.Tuple)
        ):
            pairs = list(zip(line.targets[0].elts, line.value.elts, strict=True))
        elif isinstance(line, ast.Assign):
            pairs = [(line.targets[0], line.value)]
        elif isinstance(line, ast.AnnAssign) and line.value is not None:
            pairs = [(line.target, line.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id in _WANTED:
                found[target.id] = _value(value)
    return found


def _value(node: ast.expr) -> Any:
    """A literal, or hosts by the names that their table has for them."""
    return eval(compile(ast.Expression(node), __name__, "eval"), dict(vars(hosts)))
