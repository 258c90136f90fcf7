"""The lines of a file around the line that a finding names."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

AROUND = 3


def split(location: str) -> tuple[str, int]:
    """Return file and line of ``file:line``; line 0 if the text has no line number."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else (location, 0)


def shown(file: str) -> str:
    """A path for readers: relative to the current folder, if it is inside."""
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
    """Return the line and column at which Python cannot parse a file."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return {error.lineno or 0: error.offset or 0}
    return {}
