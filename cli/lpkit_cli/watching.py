"""Waiting for a change of a plugin's files."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable
from pathlib import Path

POLL_SECONDS = 0.3
SKIPPED = frozenset({".git", ".venv", "__pycache__", ".lpkit", "node_modules", "build", "dist"})

Times = dict[Path, int]


def roots(targets: Iterable[str]) -> list[Path]:
    """The current folder, the folders of targets that are files, and the packages of those that are modules."""
    found = [Path.cwd()]
    for target in targets:
        module, _, _ = target.partition(":")
        if ".py" in target:
            found.append(Path(target.rpartition(":")[0] if not target.endswith(".py") else target).resolve().parent)
        elif ":" in target:
            top = importlib.util.find_spec(module.partition(".")[0])  # of a top level: nothing is imported
            found += [Path(folder) for folder in (top.submodule_search_locations or ())] if top else []
    return [path for path in dict.fromkeys(found) if path.is_dir()]


def times(folders: Iterable[Path]) -> Times:
    """When each Python file and each pyproject.toml below these folders was last changed."""
    found: Times = {}
    waiting = list(folders)
    while waiting:
        try:
            entries = list(waiting.pop().iterdir())
        except OSError:
            continue
        for path in entries:
            if path.is_dir() and not path.is_symlink():
                waiting += [] if path.name in SKIPPED else [path]
            elif path.suffix == ".py" or path.name == "pyproject.toml":
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:
                    continue
    return found


def wait(folders: Iterable[Path], before: Times) -> list[Path]:
    """Return when a file is new, changed or gone; which ones."""
    folders = list(folders)
    while True:
        now = times(folders)
        changed = [path for path in now.keys() | before.keys() if now.get(path) != before.get(path)]
        if changed:
            return sorted(changed)
        time.sleep(POLL_SECONDS)
