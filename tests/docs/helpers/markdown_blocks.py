"""Fenced blocks of a Markdown page, each with the HTML comment above it: ``<!-- key: value -->``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        mark, value: ``edit`` and ``file.py`` from ``<!-- edit: file.py -->`` directly above it; empty without one.
        line: of the opening fence, for messages.
        section: the heading above it.
    """

    language: str
    text: str
    mark: str
    value: str
    line: int
    section: str = ""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(source):
        mark, _, value = (match["mark"] or "").partition(": ")
        line = source.count("\n", 0, match.start("language")) + 1
        section = re.findall(r"^## (.+)$", source[: match.start()], re.M)[-1:]
        found.append(Block(match["language"], match["text"], mark, value, line, "".join(section)))
    return found


def matches(expected: str, got: str) -> bool:
    """Return True if ``got`` is ``expected``, in which ``...`` matches anything and each number any number.

    Trailing spaces do not count.
    """
    parts = [re.escape(part) for part in _tidy(expected).split("...")]
    return re.fullmatch(".*".join(parts), _tidy(got), re.S) is not None


def _tidy(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return re.sub(r"(?<![\w.])\d+(\.\d+)?(?![\w])", "0", lines)
