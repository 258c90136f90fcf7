"""The line from which on two processes differ."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.instruments import trails

COUNTER = count()
SEED = 1
WORDS = {"b": 1, "a": 2}


class Plugin:
    """Reads what may differ, and what must not count."""

    SCALE = 1

    def __init__(self) -> None:
        self.by_id = {2**33 + next(COUNTER): 1}
        self.words = {"x", "y"}

    def returns(self) -> int:
        return SEED * 2

    def makes(self) -> int:
        made = next(COUNTER)
        return made

    def branches(self) -> int:
        if self.SCALE > 1:
            return 1
        return 0

    def iterates(self) -> list[str]:
        found = []
        for word in WORDS:
            found.append(word)
        return found


def trail(method: str) -> list[trails.Seen]:
    with trails.trail() as seen:
        getattr(Plugin(), method)()
    return seen


@pytest.mark.parametrize(
    ("owner", "name", "value", "method", "blamed", "text"),
    [
        (None, "SEED", 2, "returns", "SEED", "SEED = 1"),
        (Plugin, "SCALE", 2, "branches", "self.SCALE", "    SCALE = 1"),
        (None, "WORDS", {"a": 2, "b": 1}, "iterates", "WORDS", 'WORDS = {"b": 1, "a": 2}'),
    ],
)
def test_data_that_differs_is_named_with_its_definition(
    owner: Any, name: str, value: Any, method: str, blamed: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = trail(method)
    if owner:
        monkeypatch.setattr(owner, name, value)
    else:
        monkeypatch.setitem(globals(), name, value)
    found, location = trails.parting(here, trail(method))
    assert (found, line_of(location)) == (blamed, text)


def test_what_a_line_makes_has_its_line_and_ids_as_keys_do_not_count() -> None:
    found, location = trails.parting(trail("makes"), trail("makes"))
    assert (found, line_of(location)) == ("made", "        made = next(COUNTER)")
    assert trails.parting(trail("returns"), trail("returns")) == ("", "")


def line_of(location: str) -> str:
    file, _, line = location.rpartition(":")
    return Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


class Fills(list[int]):
    """Adds to a table when it is read, as another thread may do in between."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table

    def __iter__(self) -> Any:
        self.table["more"] = 1
        return super().__iter__()


def test_a_table_that_grows_while_it_is_read_raises_nothing_in_the_plugin() -> None:
    class Grows:
        def __init__(self) -> None:
            self.table: dict[str, Any] = {}
            self.table["items"] = Fills(self.table)

        def reads(self) -> int:
            return len(self.table)

    grown = Grows()
    with trails.trail():
        assert grown.reads()
