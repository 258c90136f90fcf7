"""The lines of a file around the one that a finding names."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

AROUND = 3


def split(location: str) -> tuple[str, int]:
    """File and line of ``file:line``; line 0 if there is none."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else (location, 0)


def shown(file: str) -> str:
    """A path as people read it: from the current folder, if it lies there."""
    path, here = Path(file), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_absolute() and here in path.parents else path.as_posix()


def excerpt(location: str) -> list[tuple[int, str]]:
    """(number, text) of the lines around ``file:line``; empty if the file cannot be read."""
    file, line = split(location)
    if not line:
        return []
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):  # a name that no file can have is a ValueError
        return []
    numbers = range(max(line - AROUND, 1), min(line + AROUND, len(lines)) + 1)
    return [(number, lines[number - 1].expandtabs(4)) for number in numbers] if line <= len(lines) else []


def unparsable(location: str) -> int:
    """The column, from 1, at which Python cannot parse that very line; 0 if it can."""
    file, line = split(location)
    try:
        return _columns(Path(file).read_bytes()).get(line, 0)
    except (OSError, ValueError):
        return 0


@functools.lru_cache(maxsize=64)
def _columns(source: bytes) -> dict[int, int]:
    """Line and column at which Python cannot parse a file; the findings of a plugin are mostly in one."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return {error.lineno or 0: error.offset or 0}
    return {}
