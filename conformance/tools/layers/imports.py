"""Imports of every module of the packages, read from its source, including lazy and TYPE_CHECKING imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {"lpkit": "sdk", "lpkit_conformance": "conformance", "lpkit_cli": "cli"}
"""Package -> the folder that holds it, lowest first."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name; a package goes by its own name."""
    files = {}
    for package, folder in PACKAGES.items():
        for file in sorted((ROOT / folder / package).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            if "_template" not in parts:
                files[".".join(part for part in parts if part != "__init__")] = file
    return files


@cache
def imports() -> dict[str, frozenset[str]]:
    """Module -> the modules of these packages that it imports, anywhere in its text."""
    files = modules()
    return {module: frozenset(imported(module, file) & files.keys() - {module}) for module, file in files.items()}


@cache
def imported(module: str, file: Path) -> frozenset[str]:
    """Names of the modules that a file imports, anywhere in its text."""
    return frozenset(_imported(module, file))


def _imported(module: str, file: Path) -> Iterator[str]:
    parents = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in modules() else origin


def circle() -> list[str]:
    """Modules that import each other in a circle, each the one behind it; empty if there is none."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
