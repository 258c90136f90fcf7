"""Text on one line, and terminal colours, for all text reports."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import IO, TypeAlias

STYLES = {
    "PASS": "bold green",
    "FIXED": "bold green",
    "FAIL": "bold red",
    "ERROR": "bold red",
    "UNEXPECTED PASS": "bold red",
    "STILL FAILING": "bold red",
    "expected": "cyan",
    "advice": "yellow",
    "error": "red",
    "note": "yellow",
    "starts": "green",
    "blocks": "red",
    "WORSE": "red",
    "inactive": "red",
    "unknown": "yellow",
    "yes": "green",
    "no": "red",
    "No problems found.": "green",
}
"""Styles of words that stand for a verdict: at the beginning of a line, or in the last cell of a table's row."""

Line: TypeAlias = str | tuple[str, str]
"""A line, or a line with a style of its own."""

_VERDICT = re.compile(f"({'|'.join(map(re.escape, STYLES))})(?= |$)")
_ANSWER = re.compile(r" {2}(yes|no|unknown)$")
_LABEL = re.compile(r" {4}[ a-z]{11} ")


def one_line(text: str) -> str:
    """``text`` without line breaks and control characters, which metadata and a plugin's messages may have."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def table(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return a line per row, with aligned columns; ``right``: the columns that are aligned at their ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def show(lines: Iterable[Line], file: IO[str]) -> None:
    """Print lines, in colours if ``file`` is a terminal."""
    if file.isatty():
        show_coloured(lines, file)
    else:
        file.writelines(f"{line if isinstance(line, str) else line[0]}\n" for line in lines)


def show_coloured(lines: Iterable[Line], file: IO[str]) -> None:
    """Print lines with their verdicts in colours and their labels dimmed, as far as ``file`` can."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in lines:
        if not isinstance(line, str):
            console.print(Text(*line))
            continue
        text = Text(line)
        if verdict := _VERDICT.match(line) or _ANSWER.search(line):
            text.stylize(STYLES[verdict[1]], *verdict.span(1))
        elif label := _LABEL.match(line):
            text.stylize("dim", 0, label.end())
        console.print(text)
