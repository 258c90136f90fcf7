"""Read the table of facts about vLLM, ``facts.toml``; its header explains the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from lpkit._nearest import suggest
from lpkit._toml import tomllib

Release: TypeAlias = tuple[int, ...]
"""Numbers of a release, ``(0, 31, 0)``."""

ABSENT: Final = "-"
"""Value of a fact in a release that has nothing of the kind."""

_SEPARATOR: Final = "; "
_NO_FACTS: Final = ("notice", "torch")


class UnknownFactError(LookupError):
    """The table has no such fact, or the fact never had such an entry; the message names the nearest."""


@dataclass(frozen=True)
class Fact:
    """A fact that lpkit relies on.

    Attributes:
        key: name in the table, e.g. ``"async-default"``.
        meaning: one line for readers.
        group: heading that the fact belongs to.
        history: (release, value) for each release that changed the value, oldest first.
    """

    key: str
    meaning: str
    group: str
    history: tuple[tuple[Release, str], ...]


@dataclass(frozen=True)
class Row:
    """One release.

    Attributes:
        name: version as vLLM publishes it.
        release: the same as numbers.
        notice: what a plugin author notices, or "".
        torch: version that the build for CPUs needs, or "" if `make certify` does not run this release.
    """

    name: str
    release: Release
    notice: str = ""
    torch: str = ""


@dataclass(frozen=True)
class Facts:
    """The whole table.

    Attributes:
        developed_with: the release whose interfaces the stand-in has.
        compared: day of the last `make canary` over all releases.
        facts: by key, in the table's order.
        rows: the releases, oldest first.
    """

    developed_with: str
    compared: str
    facts: Mapping[str, Fact]
    rows: tuple[Row, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Versions of all releases, oldest first."""
        return tuple(row.name for row in self.rows)

    def value(self, key: str, release: Release | None) -> str:
        """Value of a fact in a release; None and releases newer than the table have the newest value."""
        values = [value for since, value in self._fact(key).history if release is None or since <= release]
        return values[-1] if values else ABSENT

    def entries(self, key: str, release: Release | None) -> tuple[str, ...]:
        """Entries of a fact's value, without their conditions."""
        return _entries(self.value(key, release))

    def has(self, key: str, entry: str, release: Release | None) -> bool:
        """Return True if a fact's value has this entry in a release."""
        self.since(key, entry)  # an entry that no release has is misspelt
        return entry in self.entries(key, release)

    def since(self, key: str, entry: str) -> Release:
        """First release in which a fact's value has this entry."""
        entries: list[str] = []
        for release, value in self._fact(key).history:
            if entry in _entries(value):
                return release
            entries += _entries(value)
        raise UnknownFactError(f"{key} of vLLM never was {entry!r}; {suggest(entry, dict.fromkeys(entries))}")

    def _fact(self, key: str) -> Fact:
        if key not in self.facts:
            raise UnknownFactError(f"there is no fact {key!r} about vLLM; {suggest(key, self.facts)}")
        return self.facts[key]


def numbers(version: str) -> Release:
    """``(0, 10, 1, 1)`` of ``"0.10.1.1"``."""
    return tuple(int(number) for number in version.split("."))


def in_full(release: Release) -> str:
    """``"0.31.0"`` of ``(0, 31, 0)``."""
    return ".".join(map(str, release))


def in_short(release: Release) -> str:
    """``"0.31"`` of ``(0, 31, 0)``, and ``"0.11.1"`` of ``(0, 11, 1)``."""
    return in_full(release[:2] if release[2:] == (0,) else release)


def read(text: str) -> Facts:
    """Read a table.

    Raises:
        UnknownFactError: a release names a fact that is not declared.
        ValueError: the releases are not in order, or a value repeats the previous value.
    """
    data = tomllib.loads(text)
    rows = tuple(
        Row(name, numbers(name), section.get("notice", ""), section.get("torch", ""))
        for name, section in data["releases"].items()
    )
    if [row.release for row in rows] != sorted({row.release for row in rows}):
        raise ValueError("the releases of vLLM are not in order, oldest first")
    meanings = {key: (meaning, group) for group, keys in data["facts"].items() for key, meaning in keys.items()}
    histories: dict[str, list[tuple[Release, str]]] = {key: [] for key in meanings}
    for row in rows:
        for key, value in data["releases"][row.name].items():
            if key not in _NO_FACTS:
                _append(histories, key, row, value)
    facts = {key: Fact(key, *meanings[key], tuple(history)) for key, history in histories.items()}
    return Facts(data["developed_with"], data["compared"], facts, rows)


def _append(histories: Mapping[str, list[tuple[Release, str]]], key: str, row: Row, value: Any) -> None:
    if key not in histories:
        raise UnknownFactError(f"vLLM {row.name}: there is no fact {key!r}; {suggest(key, histories)}")
    text = value if isinstance(value, str) else joined(value)
    if histories[key] and histories[key][-1][1] == text:
        raise ValueError(f"vLLM {row.name}: {key} is what it was before")
    histories[key].append((row.release, text))


def joined(entries: Iterable[str]) -> str:
    """Entries as one value."""
    return _SEPARATOR.join(entries)


def _entries(value: str) -> tuple[str, ...]:
    return () if value == ABSENT else tuple(entry.partition(" when ")[0] for entry in value.split(_SEPARATOR))


VLLM: Final = read(Path(__file__).with_name("facts.toml").read_text("utf-8"))
