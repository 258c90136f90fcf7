"""V1's persistent batch against the documented examples; ``tests/engine`` has it follow vLLM's in random operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lpkit.runtime import Request, V1Batch
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
