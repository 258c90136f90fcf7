"""The reference plugins, as they lie in the tree; nothing needs to be installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDERS = sorted(path.parent for path in Path(__file__).resolve().parents[1].glob("reference_plugins/*/pyproject.toml"))


def load(target: str) -> Any:
    """The class of ``module:Class``."""
    for folder in FOLDERS:
        if str(folder / "src") not in sys.path:
            sys.path.append(str(folder / "src"))
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def announced(folder: Path) -> tuple[Any, Mapping[str, Any]]:
    """The class that a plugin announces, and the fields of its first case."""
    from lpkit_conformance.settings import project
    from lpkit_conformance.settings.cases import Case

    found = project.find(folder)
    assert found is not None
    (target,) = found.entry_points.values()
    return load(target), Case.parse(found.cases[0]).fields
