"""The lines of a file around the line that a finding names."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Literal, NamedTuple

AROUND = 3


class SourceLine(NamedTuple):
    """A line of a file; ``at``: the line that a finding names; ``caret``: a mark below it, without a number."""

    number: str
    text: str
    kind: Literal["", "at", "caret"] = ""


def split(location: str) -> tuple[str, int]:
    """Return file and line of ``file:line``; line 0 if the text has no line number."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else (location, 0)


def shown(file: str) -> str:
    """A path for readers: relative to the current folder, if it is inside."""
    path, here = Path(file), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_absolute() and here in path.parents else path.as_posix()


def excerpt(location: str) -> list[SourceLine]:
    """Return the lines around ``file:line``, with a caret if Python cannot parse it; [] if it cannot be read."""
    file, at = split(location)
    try:
        source = Path(file).read_bytes() if at else b""
    except (OSError, ValueError):  # a name that no file can have is a ValueError
        return []
    lines = source.decode("utf-8", "replace").splitlines()
    if not 0 < at <= len(lines):
        return []
    first = max(at - AROUND, 1)
    texts = [line.expandtabs(4) for line in lines[first - 1 : at + AROUND]]
    indent = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
    shown_lines = [SourceLine(str(n), text[indent:], "at" if n == at else "") for n, text in enumerate(texts, first)]
    line, column = _syntax_error(source)
    if line == at and column:
        shown_lines.insert(at - first + 1, SourceLine("", " " * (column - 1 - indent) + "^", "caret"))
    return shown_lines


@functools.lru_cache(maxsize=64)
def _syntax_error(source: bytes) -> tuple[int, int]:
    """Return the line and column, from 1, at which Python cannot parse a file."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return error.lineno or 0, error.offset or 0
    except ValueError:  # null bytes
        pass
    return 0, 0
