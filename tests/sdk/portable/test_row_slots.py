"""The ledger against a model that simply keeps a list of requests by row."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from lpkit.portable.row_slots import Ledger
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from sdk_hosts import ONE_WAY, SWAP

WANTED = SamplingParams(extra_args={"wanted": 1})
OTHER = SamplingParams()


def wants(slot: int, params: SamplingParams, prompt: list[int] | None) -> bool:
    return params is WANTED


@dataclass
class World:
    """A batch of requests by row; each is (output list, params). Makes valid updates and applies them itself."""

    limit: int
    rng: random.Random
    share: float
    rows: list[tuple[list[int], SamplingParams]] = field(default_factory=list)
    born: int = 0

    def newcomer(self) -> tuple[list[int], SamplingParams]:
        self.born += 1
        return [self.born], WANTED if self.rng.random() < self.share else OTHER

    def step(self, documented: bool) -> BatchUpdate | None:
        """One update, as the engine emits it or as its documentation writes it.

        They differ in ``removed``: the engine leaves out rows that an Add or a one-way move fills again.
        """
        rng = self.rng
        before = len(self.rows)
        gone = sorted(i for i in range(before) if rng.random() < rng.choice((0.0, 0.1, 0.5, 1.0)))
        rows: list[Any] = [None if i in gone else request for i, request in enumerate(self.rows)]
        added = []
        holes = list(gone)
        for _ in range(rng.randint(0, self.limit - before + len(gone))):
            row = holes.pop(0) if holes else len(rows)
            request = self.newcomer()
            if row == len(rows):
                rows.append(request)
            else:
                rows[row] = request
            added.append((row, request[1], [1, 2], request[0]))
        filled = []
        moved: list[Any] = []
        while holes:
            while rows and rows[-1] is None:
                rows.pop()
            hole = holes.pop(0)
            if hole >= len(rows):
                continue
            moved.append((len(rows) - 1, hole, ONE_WAY))
            rows[hole] = rows.pop()
            filled.append(hole)
        while rows and rows[-1] is None:
            rows.pop()
        for _ in range(rng.choice((0, 0, 1, 4))):
            if len(rows) > 1:
                a, b = rng.sample(range(len(rows)), 2)
                moved.append((a, b, SWAP))
                rows[a], rows[b] = rows[b], rows[a]
        self.rows = rows
        refilled = {row for row, *_ in added} | set(filled)
        removed = [i for i in reversed(gone) if documented or i not in refilled]
        if not (removed or added or moved):
            return None
        return BatchUpdate(len(rows), removed, added, moved)


@pytest.mark.parametrize("documented", [False, True], ids=["engine form", "documented form"])
@pytest.mark.parametrize("limit", [1, 2, 5, 17])
@pytest.mark.parametrize("share", [0.2, 0.7, 1.0])
def test_rows_follow_any_valid_update_and_slots_never_leak(documented: bool, limit: int, share: float) -> None:
    world = World(limit, random.Random(f"{documented} {limit} {share}"), share)
    released: list[int] = []
    ledger = Ledger(limit, released.append)
    held: dict[int, int] = {}  # id of an output list -> slot, for as long as the request lives
    for _ in range(600):
        update = world.step(documented)
        if update is None:
            continue
        before = {row: entry.output_ids[0] for row, entry in ledger.rows.items()}
        released.clear()
        changed = ledger.update(update, wants)
        expected = {row: output for row, (output, params) in enumerate(world.rows) if params is WANTED}
        assert {row: entry.output_ids for row, entry in ledger.rows.items()} == expected
        assert all(entry.output_ids is expected[row] for row, entry in ledger.rows.items())
        after = {row: entry.output_ids[0] for row, entry in ledger.rows.items()}
        assert changed or after == before
        slots = {entry.output_ids[0]: entry.slot for entry in ledger.rows.values()}
        assert len(set(slots.values())) == len(slots)
        assert all(0 <= slot < limit for slot in slots.values())
        for name, slot in slots.items():
            assert held.get(name, slot) == slot  # a slot never moves
        gone = [slot for name, slot in held.items() if name not in slots]
        # Every slot of a request that left was released once; a slot may be given out again in the same update.
        assert sorted(released) == sorted(gone)
        held = slots
    everyone = BatchUpdate(0, list(range(len(world.rows) - 1, -1, -1)), [], [])
    ledger.update(everyone, wants)
    assert not ledger.rows
    full = [(row, WANTED, None, []) for row in range(limit)]
    ledger.update(BatchUpdate(limit, [], full, []), wants)
    assert sorted(entry.slot for entry in ledger.rows.values()) == list(range(limit))


def letters(ledger: Ledger, size: int) -> list[str]:
    names: dict[int, Any] = {row: entry.output_ids for row, entry in ledger.rows.items()}
    return [names[row] for row in range(size)]


def start() -> Ledger:
    ledger = Ledger(8, lambda slot: None)
    ledger.update(BatchUpdate(4, [], [add(row, name) for row, name in enumerate("ABCD")], []), wants)
    return ledger


def add(row: int, name: Any) -> Any:
    return (row, WANTED, [1], name)


@pytest.mark.parametrize("removed", [[2], []], ids=["documented form", "engine form"])
def test_replace_condense_and_swap_of_the_documented_example(removed: list[int]) -> None:
    ledger = start()
    ledger.update(BatchUpdate(3, removed, [add(0, "E")], [(3, 2, ONE_WAY), (0, 1, SWAP)]), wants)
    assert letters(ledger, 3) == ["B", "E", "D"]
    assert sorted(ledger.rows) == [0, 1, 2]


def test_replace_grow_and_swap_of_the_documented_example() -> None:
    ledger = start()
    ledger.update(BatchUpdate(5, [], [add(2, "E"), add(4, "F")], [(0, 1, SWAP)]), wants)
    assert letters(ledger, 5) == ["B", "A", "E", "D", "F"]


def test_a_declined_request_replaces_an_admitted_one() -> None:
    ledger = start()
    ledger.update(BatchUpdate(4, [], [(1, OTHER, [1], [])], []), wants)
    assert sorted(ledger.rows) == [0, 2, 3]


def test_a_move_onto_an_admitted_request_forgets_it_even_if_the_mover_was_declined() -> None:
    released: list[int] = []
    ledger = Ledger(4, released.append)
    ledger.update(BatchUpdate(3, [], [add(0, "A"), add(1, "B"), (2, OTHER, [1], [])], []), wants)
    slot = ledger.rows[1].slot
    ledger.update(BatchUpdate(2, [], [], [(2, 1, ONE_WAY)]), wants)
    assert sorted(ledger.rows) == [0]
    assert released == [slot]


def test_a_chain_of_swaps_carries_a_request_across_the_batch() -> None:
    ledger = start()
    ledger.update(BatchUpdate(4, [], [], [(0, 1, SWAP), (1, 2, SWAP), (2, 3, SWAP)]), wants)
    assert letters(ledger, 4) == ["B", "C", "D", "A"]


def test_an_update_that_concerns_nobody_admitted_says_so() -> None:
    ledger = Ledger(4, lambda slot: None)
    assert not ledger.update(BatchUpdate(2, [], [(0, OTHER, [1], []), (1, OTHER, [1], [])], [(0, 1, SWAP)]), wants)
    assert ledger.update(BatchUpdate(2, [], [add(0, "A")], []), wants)
    assert not ledger.update(BatchUpdate(2, [], [(1, OTHER, [1], [])], []), wants)


def test_nobody_is_asked_about_requests_without_the_keys() -> None:
    asked = []

    def ask(slot: int, params: SamplingParams, prompt: list[int] | None) -> bool:
        asked.append(params)
        return True

    ledger = Ledger(4, lambda slot: None, frozenset({"wanted"}))
    foreign = SamplingParams(extra_args={"other": 1})
    ledger.update(BatchUpdate(3, [], [add(0, "A"), (1, OTHER, [1], []), (2, foreign, [1], [])], []), ask)
    assert asked == [WANTED] and sorted(ledger.rows) == [0]
    assert ledger.update(BatchUpdate(3, [], [(0, foreign, [1], [])], []), ask)
    assert asked == [WANTED] and not ledger.rows  # it replaced one of ours
