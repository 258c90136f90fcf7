"""Declared dependencies are imported, and imported packages are declared."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("sdk/lpkit", "conformance/lpkit_conformance", "cli/lpkit_cli")
OTHERS = ("benchmarks", "conformance/tools", "docs", "tests")
OURS = {"lpkit", "lpkit_conformance", "lpkit_cli"}
OPTIONAL = {"safetensors", "triton", "typing_extensions", "vllm"}
"""Packages that vLLM and torch bring, and modules that only type checkers read."""
WITH_VLLM = {"transformers", "fastapi", "yaml"}
"""vLLM needs them: for a plugin that loads a tokenizer, and for routes of vLLM's server."""
OTHER_ENGINES = {"mlx", "sglang"}
"""They call an exported processor where they are, so they are there."""
PARTS = {"pydantic_core": "pydantic"}
"""Packages that another package brings, in the version that fits it."""
COMMANDS = {"build", "hatch-fancy-pypi-readme", "hatchling", "mypy", "pip", "pytest-xdist", "ruff"}
"""Run, not imported."""


def imported(*folders: str) -> set[str]:
    """Distributions by the packages that modules in these folders import; lazily, too."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    own = {*OURS, *(file.stem for file in files), *(file.parent.name for file in files)}
    tops = {top for file in files for top in tops_of(ast.parse(file.read_text(encoding="utf-8")))}
    tops -= {*own, *OPTIONAL, *sys.stdlib_module_names}
    return {PARTS.get(top, top).replace("_", "-") for top in tops}


def tops_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def declared(*groups: str) -> set[str]:
    """The distributions of these groups; "" is what every user gets."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = {"": project["dependencies"], **project["optional-dependencies"]}
    found = {re.match(r"[\w-]+", item)[0] for group in groups for item in table[group]}
    return found - {"vllm-lpkit"}


def test_every_import_of_what_is_shipped_is_declared_and_the_other_way_round() -> None:
    assert imported(*SHIPPED) - WITH_VLLM - OTHER_ENGINES | {"tomli"} == declared("", "runtime", "check", "new")


def test_what_the_repository_itself_needs_is_imported_or_run() -> None:
    assert declared("dev") - imported(*OTHERS) == COMMANDS
