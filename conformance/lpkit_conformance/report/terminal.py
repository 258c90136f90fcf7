"""Text on one line, and terminal colours, for all text reports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO

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
    "inactive": "red",
    "unknown": "yellow",
    "yes": "green",
    "no": "red",
    "No problems found.": "green",
}
"""Styles of words that stand for a verdict: at the beginning of a line, or in a cell of a table."""

_VERDICT = re.compile(f"({'|'.join(map(re.escape, STYLES))})(?= |$)")
_LABEL = re.compile(r" {4}[ a-z]{11} ")


def one_line(text: str) -> str:
    """``text`` without line breaks and control characters, which metadata and a plugin's messages may have."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def show(lines: Iterable[str], file: IO[str]) -> None:
    """Print lines, in colours if ``file`` is a terminal."""
    if file.isatty():
        show_coloured(lines, file)
    else:
        for line in lines:
            print(line, file=file)


def show_coloured(lines: Iterable[str], file: IO[str]) -> None:
    """Print lines with their verdicts in colours and their labels dimmed, as far as ``file`` can."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(line)
        if verdict := _VERDICT.match(line):
            text.stylize(STYLES[verdict[1]], 0, verdict.end())
        elif label := _LABEL.match(line):
            text.stylize("dim", 0, label.end())
        console.print(text)
