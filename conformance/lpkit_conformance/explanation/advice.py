"""Causes and fixes of findings, from ``advice.toml``; its header explains the format."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lpkit._nearest import suggest
from lpkit._toml import tomllib

ANY: Final = "any"
"""The group of texts that suit every reader."""

Groups = Mapping[str, Mapping[str, str]]
"""Texts by group and key."""


WIDTHS: Final = {
    "from-the-end": r"\[:, *-[\w.]",
    "clamped": r"\.clamp\w*\(",
    "padding-at": r"\.at\(",
    "padding-width": r"\.(shape|size|numel|mean)\b|\blen\(",
}
"""What the line does with the width of a batch, the length of its longest row."""

SIGNS: Final[Groups] = {
    "padding": WIDTHS,
    "histories": WIDTHS,
    "filled": {"filled": r"(?<![\"\w])(pad_sequence|zip_longest)\(|\[[^][]*\] \* \(\w+ - len\("},
    "first-slots": {"first-slots": r"\.all\[: *[\w.(]"},
    "LP105": {"popped": r"\.pop(item)?\(|\bdel\b"},
    "LP303": {
        "consumes": r"\.pop(left|item)?\(|\bnext\(",
        "draws": r"generator=|rand\w*\(|\.(\w*normal|uniform|exponential|gauss|choice|bernoulli|multinomial)_?\(",
    },
    "LP602": {"reseeded": r"seed\(|set\w*state\("},
    "LP605": {"clock": r"\b(time|monotonic|perf_counter|now|today)\w*\("},
    "LP604": {
        "hash": r"\bhash\(",
        "address": r"\bid\(",
        "moment": r"\btime\w*\(|getpid|uuid|urandom|\bnow\(",
        "random": r"\brand\w*\b|\bdefault_rng\b",
        "order": r"\bset\(|\{\*|\biter\(|\bfor .* in\b",
    },
}
"""By check or cause, and key, what the text of a line at fault shows."""


class UnknownAdviceError(LookupError):
    """The file lacks a key; the message names the nearest."""


def cause(key: str, *groups: str) -> str:
    """Return the cause of the first group that has this key, or of all."""
    return _text(CAUSES, key, groups)


def fix(key: str, *groups: str) -> str:
    """Return the fix of the first group that has this key, or of all; empty if only other groups have it."""
    return _text(FIXES, key, groups)


def _text(table: Groups, key: str, groups: tuple[str, ...]) -> str:
    keys = {key for texts in table.values() for key in texts}
    if key not in keys:
        raise UnknownAdviceError(f"advice.toml has no {key!r}; {suggest(key, keys)}")
    return next((table[group][key] for group in (*groups, ANY) if key in table.get(group, ())), "")


def sign(code: str, location: str) -> str:
    """Return the key of what the author's line at ``file:line`` does, of those that a check tells apart; else empty."""
    text = text_at(location)
    return next((key for key, pattern in SIGNS[code].items() if re.search(pattern, text)), "")


def signed(code: str, location: str) -> str:
    """Return ``file:line`` with such a sign: the location, or else the first line of its file; empty without one."""
    file = location.rpartition(":")[0]
    places = (location, *(f"{file}:{number}" for number in range(1, len(linecache.getlines(file)) + 1)))
    return next((place for place in places if sign(code, place)), "")


def text_at(location: str) -> str:
    """Return the line at ``file:line``; empty without one."""
    file, _, number = location.rpartition(":")
    return linecache.getline(file, int(number)) if file and number.isdigit() else ""


def grouped(table: Groups) -> Groups:
    """The texts by single groups and keys.

    Raises:
        ValueError: a group has two texts for a key.
    """
    texts_by_key: dict[str, dict[str, str]] = {}
    for groups, texts in table.items():
        for group in groups.split(", "):
            for keys, text in texts.items():
                for key in keys.split(", "):
                    if texts_by_key.setdefault(group, {}).setdefault(key, text) is not text:
                        raise ValueError(f"advice.toml has two texts for {key!r} in {group!r}")
    return texts_by_key


_FILE: Final = tomllib.loads(Path(__file__).with_name("advice.toml").read_text("utf-8"))
CAUSES: Final = grouped(_FILE["cause"])
FIXES: Final = grouped(_FILE["fix"])
