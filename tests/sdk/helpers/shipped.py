"""The reference plugins as they lie in the tree: what each announces, and its cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpkit.loading import resolve_target
from lpkit_conformance.settings import project

PLUGINS = sorted(path.parent for path in Path(__file__).resolve().parents[3].glob("reference_plugins/*/pyproject.toml"))


def settings(plugin: Path) -> project.Project:
    """Read the settings of a plugin's project."""
    found = project.find(plugin)
    assert found is not None
    return found


def load(plugin: Path) -> Any:
    """The one class that a plugin announces."""
    (target,) = settings(plugin).entry_points.values()
    return resolve_target(target)
