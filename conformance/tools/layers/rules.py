"""Holds the imports against the table of layers, and prints the table."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import Any

from layers.imports import PACKAGES, circle, imports, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("table.toml")
MOST_AT_ROOT = 12
"""Modules at a package's root: its face and a handful of entries; more ask for a room."""
SLACK = 100
"""Lines that a room may lie below its budget; further below, the budget is lowered to what the room needs."""


@cache
def table() -> dict[str, dict[str, Any]]:
    """The table as it is written."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(TABLE.read_text("utf-8"))
    return rows


@cache
def height() -> dict[str, tuple[int, int]]:
    """Room -> (which package, which layer of it)."""
    return {
        full(package, room): (n, layer)
        for n, package in enumerate(PACKAGES)
        for layer, rooms in enumerate(table()[package]["layers"])
        for room in rooms
    }


def full(package: str, room: str) -> str:
    """A room's dotted name; a package's own name stands for its face."""
    return package if room == package else f"{package}.{room}"


def room_of(module: str) -> str:
    """Return the room of a module; a module at a package's root is its own room."""
    parent = module.rpartition(".")[0]
    room = parent if _is_module(module) and parent not in PACKAGES else module
    while room.count(".") > 1 and room not in height():
        room = room.rpartition(".")[0]
    return room


def violations() -> list[str]:
    """Return the violations of the rules, a line each."""
    problems = [f"a circle of imports: {', '.join(circle())}"] if circle() else []
    rooms = {room_of(module) for module in modules()} - _bare_faces()
    problems += [f"{room} is not in the table" for room in sorted(rooms - height().keys())]
    problems += [f"{room} is in the table and does not exist" for room in sorted(height().keys() - rooms)]
    for module, others in imports().items():
        for other in sorted(others):
            problem = _problem(room_of(module), room_of(other))
            if problem:
                problems.append(f"{module} imports {other}: {problem}")
    for package in PACKAGES:
        at_root = [name for name in modules() if name.count(".") == 1 and room_of(name) == name and _is_module(name)]
        count = sum(name.startswith(f"{package}.") for name in at_root)
        if count > MOST_AT_ROOT:
            problems.append(f"{count} modules lie at the root of {package}, more than {MOST_AT_ROOT}")
    problems += _over_budget(rooms)
    for room in sorted(rooms):
        if not _is_module(room) and not _docstring(modules()[room]).endswith((".", ":")):
            problems.append(f"{room} does not say in one line what it holds")
    return problems


def lines(room: str) -> int:
    """Lines of Python in a room."""
    files = (file for module, file in modules().items() if room_of(module) == room)
    return sum(file.read_text("utf-8").count("\n") for file in files)


def _over_budget(rooms: set[str]) -> list[str]:
    """Return the rooms that hold more lines than the table grants, or far fewer."""
    problems = []
    for package in PACKAGES:
        budget = table()[package]["lines"]
        for room in sorted(room for room in rooms if room.partition(".")[0] == package):
            name, count = room.partition(".")[2] or room, lines(room)
            if count > budget.get(name, 0):
                problems.append(
                    f"{room} has {count} lines, and layers/table.toml grants {budget.get(name, 0)}: cut, or raise it"
                )
            elif count < budget[name] - SLACK:
                problems.append(f"{room} has {count} lines: lower its budget of {budget[name]}")
    return problems


def arrows(package: str) -> frozenset[tuple[str, str]]:
    """Return the pairs (room, room that it imports) of a package."""
    pairs = ((room_of(module), room_of(other)) for module, others in imports().items() for other in others)
    rooms = {full(package, room) for layer in table()[package]["layers"] for room in layer}
    return frozenset((room, other) for room, other in pairs if room != other and {room, other} <= rooms)


def floors(package: str) -> int:
    """Rooms in the longest chain in which each imports the next."""
    below: dict[str, set[str]] = {}
    for room, other in arrows(package):
        below.setdefault(room, set()).add(other)

    @cache
    def depth(room: str) -> int:
        return 1 + max(map(depth, below.get(room, ())), default=0)

    return max(map(depth, below), default=1)


def _is_module(room: str) -> bool:
    return modules()[room].name != "__init__.py"


def _bare_faces() -> set[str]:
    """Packages whose ``__init__`` imports no lpkit module: a docstring has no layer."""
    return {package for package in PACKAGES if not imports()[package]}


def _docstring(file: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")[0]


def _problem(room: str, other: str) -> str:
    if room == other or other in _bare_faces() or not {room, other} <= height().keys():
        return ""
    package, name = room.partition(".")[0], room.partition(".")[2] or room
    only = table()[package].get("only", {}).get(name)
    if only is not None and other not in {full(package, item) for item in only}:
        return f"{name} may import only {', '.join(only)}"
    if height()[other] < height()[room]:
        return ""
    if height()[other] > height()[room]:
        return "it lies in a higher layer"
    beside = table()[package].get("beside", {}).get(name, [])
    return "" if other in {full(package, item) for item in beside} else "it lies in the same layer"


def as_text() -> str:
    """The rooms of each layer, lowest first, each with its lines of Python and the first line of its docstring."""
    text = []
    for package, folder in PACKAGES.items():
        count = sum(map(len, table()[package]["layers"]))
        figures = f"{count} rooms, {len(arrows(package))} arrows, {floors(package)} floors"
        text.append(f"{folder}/{package}: {figures}")
        for n, rooms in enumerate(table()[package]["layers"], 1):
            for name in (full(package, room) for room in rooms):
                said = _docstring(modules()[name]) if name in modules() else ""
                text.append(f"{n:4} {lines(name):6}  {name.partition('.')[2] or name:20} {said}")
    return "\n".join(text)
