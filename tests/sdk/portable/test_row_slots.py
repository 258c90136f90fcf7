"""Each admitted request keeps its slot, whatever happens to its row."""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import invariant
from lpkit.portable.row_slots import Ledger
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from machines import STEADY, V1Traffic
from sdk_hosts import SWAP

WANTED = SamplingParams(extra_args={"wanted": 1})
OTHER = SamplingParams()


def wants(slot: int, params: SamplingParams, prompt: list[int] | None) -> bool:
    return params is WANTED


class Traffic(V1Traffic):
    """Each admitted request has its row, and a slot that never changes."""

    def begin(self, size: int) -> None:
        self.released: list[int] = []
        self.slots = Ledger(size, self.released.append)
        self.held: dict[int, int] = {}  # id of an output list -> its slot, for as long as the request lives
        self.alive: list[list[int]] = []

    def follow(self, update: BatchUpdate) -> None:
        before = self.lists()
        changed = self.slots.update(update, lambda slot, params, prompt: "add" in (params.extra_args or {}))
        after = self.lists()
        assert {row for row in before | after if before.get(row) != after.get(row)} <= changed

    def lists(self) -> dict[int, int]:
        return {row: id(entry.output_ids) for row, entry in enumerate(self.slots.entries) if entry}

    @invariant()
    def rows_and_slots_are_right(self) -> None:
        wanted = {
            row: id(request.output_token_ids)
            for row, request in enumerate(self.batch.requests)
            if "add" in (request.params.extra_args or {})
        }
        assert self.lists() == wanted
        slots = {id(entry.output_ids): entry.slot for entry in self.slots.entries if entry}
        self.alive += [entry.output_ids for entry in self.slots.entries if entry]  # so that no id comes twice
        assert len(set(slots.values())) == len(slots)
        assert set(slots.values()) <= set(range(self.batch.max_num_reqs))
        assert all(self.held.get(name, slot) == slot for name, slot in slots.items())
        # The slot of a request that left was released once; it may be given out again in the same update.
        assert sorted(self.released) == sorted(slot for name, slot in self.held.items() if name not in slots)
        self.released.clear()
        self.held = slots


class TestTraffic(Traffic.TestCase):
    settings = STEADY


def add(row: int, name: Any) -> Any:
    return (row, WANTED, [1], name)


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
    assert asked == [WANTED] and ledger.held == 1 and ledger.entries[0]
    assert ledger.update(BatchUpdate(3, [], [(0, foreign, [1], [])], []), ask)
    assert asked == [WANTED] and not ledger.held  # it replaced one of ours
