"""V1's persistent batch against the documented examples and a plain row model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lpkit.runtime import Request, V1Batch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate, MoveDirectionality
from machines import documented_form

UNI, SWAP = MoveDirectionality.UNIDIRECTIONAL, MoveDirectionality.SWAP


def follow(rows: dict[int, Any], update: BatchUpdate | None) -> dict[int, Any]:
    """A processor without tricks: removes, adds, moves, one dictionary entry per row."""
    if update is None:
        return rows
    for row in update.removed:
        rows.pop(row, None)
    for row, *_, outputs in update.added:
        rows[row] = outputs
    for source, destination, kind in update.moved:
        if kind is SWAP:
            rows[source], rows[destination] = rows[destination], rows[source]
        else:
            rows[destination] = rows.pop(source)
    return rows


def held(batch: V1Batch) -> dict[int, list[int]]:
    return {row: request.output_token_ids for row, request in enumerate(batch.requests)}


def same_objects(left: dict[int, Any], right: dict[int, Any]) -> bool:
    return left.keys() == right.keys() and all(left[row] is right[row] for row in left)


@pytest.fixture
def four(make_request: Callable[..., Request]) -> tuple[V1Batch, dict[str, Request], dict[int, Any]]:
    """[A, B, C, D] and two more requests."""
    requests = {name: make_request(name) for name in "ABCDEF"}
    batch = V1Batch(8)
    for name in "ABCD":
        batch.add(requests[name])
    return batch, requests, follow({}, batch.take_update())


def names(batch: V1Batch) -> list[str]:
    return [request.request_id for request in batch.requests]


def test_fewer_arrivals_than_departures_as_the_engine_emits_it(four: Any) -> None:
    batch, requests, rows = four
    for name in "CA":
        batch.remove(name)
    batch.add(requests["E"])
    batch.condense()
    batch.swap(0, 1)
    assert names(batch) == ["B", "E", "D"]
    update = batch.take_update()
    assert update is not None
    e = requests["E"]
    assert update.batch_size == 3
    assert list(update.removed) == []
    assert list(update.added) == [(0, e.params, e.prompt_token_ids, e.output_token_ids)]
    assert list(update.moved) == [(3, 2, UNI), (0, 1, SWAP)]
    assert same_objects(follow(rows, update), held(batch))


def test_fewer_arrivals_than_departures_as_documented(four: Any) -> None:
    batch, requests, rows = four
    for name in "AC":
        batch.remove(name)
    batch.add(requests["E"])
    batch.condense()
    batch.swap(0, 1)
    update = batch.take_update()
    assert update is not None
    e = requests["E"]
    documented = BatchUpdate(
        batch_size=3,
        removed=[2],
        added=[(0, e.params, e.prompt_token_ids, e.output_token_ids)],
        moved=[(3, 2, UNI), (0, 1, SWAP)],
    )
    assert documented_form(update) == documented
    final = follow(rows, documented)
    assert same_objects(final, {i: requests[name].output_token_ids for i, name in enumerate("BED")})


@pytest.mark.parametrize("form", [lambda update: update, documented_form], ids=["engine", "documented"])
def test_more_arrivals_than_departures(four: Any, form: Callable[[BatchUpdate], BatchUpdate]) -> None:
    batch, requests, rows = four
    batch.remove("C")
    assert [batch.add(requests[name]) for name in "EF"] == [2, 4]
    batch.condense()
    batch.swap(0, 1)
    assert names(batch) == list("BAEDF")
    update = batch.take_update()
    assert update is not None
    update = form(update)
    added = [
        (row, requests[n].params, requests[n].prompt_token_ids, requests[n].output_token_ids)
        for row, n in ((2, "E"), (4, "F"))
    ]
    assert update == BatchUpdate(5, [], added, [(0, 1, SWAP)])
    final = follow(rows, update)
    assert same_objects(final, {i: requests[name].output_token_ids for i, name in enumerate("BAEDF")})


def test_what_the_engine_forbids_is_refused(four: Any, make_request: Callable[..., Request]) -> None:
    batch, requests, _ = four
    with pytest.raises(ValueError, match="already"):
        batch.add(requests["A"])
    with pytest.raises(IndexError):
        batch.swap(0, 4)
    assert batch.remove("Z") is None
    batch.remove("A")
    with pytest.raises(RuntimeError, match="condense"):
        batch.take_update()
    batch.add(requests["E"])
    with pytest.raises(RuntimeError):
        batch.remove("B")
    small = V1Batch(1)
    small.add(make_request("x"))
    with pytest.raises(ValueError, match="full"):
        small.add(make_request("y"))


def check_form(update: BatchUpdate, before: int) -> None:
    """Check the invariants of every update of the engine."""
    size, removed = update.batch_size, list(update.removed)
    added = [row for row, *_ in update.added]
    assert removed == sorted(set(removed), reverse=True)
    assert all(row >= size for row in removed)
    assert not set(removed) & set(added)
    assert len(set(added)) == len(added)
    kinds = [kind for *_, kind in update.moved]
    assert kinds == sorted(kinds, key=lambda kind: kind is SWAP), "swaps follow the one-way moves"
    one_way = [(a, b) for a, b, kind in update.moved if kind is UNI]
    assert all(a >= size > b for a, b in one_way)
    assert one_way == sorted(one_way, key=lambda move: -move[0]) == sorted(one_way, key=lambda move: move[1])
    assert all(max(a, b) < size for a, b, kind in update.moved if kind is SWAP)
    assert all(row < max(before, size) for row in [*removed, *added])


class Rows(RuleBasedStateMachine):
    """The batch against a list with gaps; what it reports against two processors without any trick.

    Operations come in the engine's order: removals, additions, the condense moves, swaps, the update.
    """

    @initialize(size=st.integers(1, 6))
    def start(self, size: int) -> None:
        self.size = size
        self.batch = V1Batch(size)
        self.model: list[Request | None] = []
        self.told: dict[int, Any] = {}
        self.told_as_documented: dict[int, Any] = {}
        self.away: list[Request] = []
        self.serial = self.before = 0
        self.changed = False
        self.phase = "removals"

    def present(self) -> list[Request]:
        return [request for request in self.model if request is not None]

    @precondition(lambda self: self.phase == "removals" and self.present())
    @rule(data=st.data(), comes_back=st.booleans())
    def remove(self, data: st.DataObject, comes_back: bool) -> None:
        request = data.draw(st.sampled_from(self.present()))
        row = self.model.index(request)
        assert self.batch.remove(request.request_id) == row
        assert request.request_id not in self.batch
        self.model[row] = None
        self.changed = True
        if comes_back:
            self.away.append(request)

    @precondition(lambda self: self.phase != "swaps" and len(self.present()) < self.size)
    @rule(back=st.booleans(), new_list=st.booleans())
    def add(self, back: bool, new_list: bool) -> None:
        if back and self.away:
            request = self.away.pop()
            if new_list:
                request.output_token_ids = [*request.output_token_ids]
        else:
            request = Request(f"r{self.serial}", SamplingParams(), [1])
            self.serial += 1
        row = self.model.index(None) if None in self.model else len(self.model)
        self.model[row : row + 1] = [request]
        assert self.batch.add(request) == row
        self.changed = True
        self.phase = "additions"

    @precondition(lambda self: len(self.present()) > 1)
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        self.condense()
        rows = st.sampled_from(range(len(self.model)))
        first, second = data.draw(st.tuples(rows, rows))
        self.batch.swap(first, second)
        self.model[first], self.model[second] = self.model[second], self.model[first]
        self.changed = True

    def condense(self) -> None:
        if self.phase == "swaps":
            return
        self.batch.condense()
        while None in self.model:
            last = self.model.pop()
            if last is not None:
                self.model[self.model.index(None)] = last
        self.phase = "swaps"

    @rule()
    def step(self) -> None:
        self.condense()
        update = self.batch.take_update()
        assert (update is not None) is self.changed
        if update is not None:
            check_form(update, self.before)
            self.told_as_documented = follow(self.told_as_documented, documented_form(update))
        self.told = follow(self.told, update)
        assert same_objects(self.told, held(self.batch))
        assert same_objects(self.told_as_documented, held(self.batch))
        for request in self.present():
            request.output_token_ids.append(7)
        self.before, self.changed, self.phase = len(self.batch), False, "removals"

    @invariant()
    def every_request_stands_where_the_model_has_it(self) -> None:
        assert len(self.batch) == len(self.present())
        assert all(self.batch.row(r.request_id) == row for row, r in enumerate(self.model) if r is not None)


class TestRows(Rows.TestCase):
    settings = settings(derandomize=True, deadline=None, database=None, max_examples=80, stateful_step_count=40)
