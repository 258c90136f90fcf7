"""The largest bound of a container in a class's code, and the fields that it reads."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import pytest
from lpkit_conformance.settings.class_code import fields_read, largest_bound

ROOM = 700


class Table:
    def __init__(self, size: int = 900) -> None:
        self.size = size
        self.entries: dict[Any, Any] = {}

    def put(self, key: Any) -> None:
        if len(self.entries) < self.size:
            self.entries[key] = key


class Compares:
    def put(self, entries: list[int]) -> bool:
        return len(entries) >= 2 * 256


class OfTheModule:
    def put(self, entries: list[int]) -> bool:
        return len(entries) > ROOM


class OfTheClass:
    LIMIT = 1 << 10

    def put(self, entries: list[int]) -> bool:
        return len(entries) == self.LIMIT


class Inherits(OfTheClass):
    LIMIT = 333


class ByHelper:
    def __init__(self) -> None:
        self.table = Table()


class Caches:
    value = staticmethod(lru_cache(maxsize=512)(abs))


class Window:
    def __init__(self) -> None:
        self.latest = deque[int]([], 800)


class Ring:
    def place(self, count: int) -> int:
        return count % 600


class Unbounded:
    """Numbers that bound nothing, or too much or too little."""

    TOKEN = 1000

    def put(self, entries: list[int]) -> bool:
        return len(entries) in (255, 4097) or entries[0] > self.TOKEN


@pytest.mark.parametrize(
    ("cls", "entries"),
    [
        (Compares, 512),
        (OfTheModule, 700),
        (OfTheClass, 1024),
        (Inherits, 333),
        (ByHelper, 900),
        (Caches, 512),
        (Window, 800),
        (Ring, 600),
        (Unbounded, 0),
    ],
)
def test_the_bound_is_read_from_the_code(cls: type, entries: int) -> None:
    assert largest_bound(cls).entries == entries


def test_a_bound_has_its_line() -> None:
    assert largest_bound(Ring).line == f"{__file__}:{Ring.place.__code__.co_firstlineno + 1}"


class ReadsFields:
    min_p = 0.0

    def enter(self, params: Any) -> list[Any]:
        return [self.min_p, params.top_k, getattr(params, "seed", None)]


def test_the_fields_that_a_class_reads_are_those_of_its_requests() -> None:
    assert fields_read(ReadsFields, ("min_p", "top_k", "seed", "logprobs")) == ["top_k", "seed"]
