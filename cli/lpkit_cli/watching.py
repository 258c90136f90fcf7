"""Waits for a change of a plugin's files."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable
from pathlib import Path

POLL_SECONDS = 0.3
SKIPPED = frozenset({".git", ".venv", "__pycache__", ".lpkit", "node_modules", "build", "dist"})

Times = dict[Path, int]


def roots(targets: Iterable[str]) -> list[Path]:
    """Return the current folder, the folders of file targets, and the packages of module targets."""
    folders = [Path.cwd()]
    for target in targets:
        module, _, _ = target.partition(":")
        if ".py" in target:
            folders.append(Path(target.rpartition(":")[0] if not target.endswith(".py") else target).resolve().parent)
        elif ":" in target:
            top = importlib.util.find_spec(module.partition(".")[0])  # finds the top level only: nothing is imported
            folders += [Path(folder) for folder in (top.submodule_search_locations or ())] if top else []
    return [path for path in dict.fromkeys(folders) if path.is_dir()]


def times(folders: Iterable[Path]) -> Times:
    """Return the time of the last change of each Python file and pyproject.toml below these folders."""
    changed_at: Times = {}
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
                    changed_at[path] = path.stat().st_mtime_ns
                except OSError:
                    continue
    return changed_at


def wait(folders: Iterable[Path], before: Times) -> list[Path]:
    """Wait until a file is new, changed or gone; return these files."""
    folders = list(folders)
    while True:
        now = times(folders)
        changed = [path for path in now.keys() | before.keys() if now.get(path) != before.get(path)]
        if changed:
            return sorted(changed)
        time.sleep(POLL_SECONDS)
