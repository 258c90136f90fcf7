"""V1's persistent batch against the documented examples; ``tests/engine`` has it follow vLLM's in random operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lpkit.runtime import Request, V1Batch
from lpkit.v1 import BatchUpdate, MoveDirectionality
from machines import documented_form

UNI, SWAP = MoveDirectionality.UNIDIRECTIONAL, MoveDirectionality.SWAP


@pytest.fixture
def four(make_request: Callable[..., Request]) -> tuple[V1Batch, dict[str, Request]]:
    """[A, B, C, D] and two more requests."""
    requests = {name: make_request(name) for name in "ABCDEF"}
    batch = V1Batch(8)
    for name in "ABCD":
        batch.add(requests[name])
    batch.take_update()
    return batch, requests


@pytest.mark.parametrize(
    ("gone", "come", "rows", "moved", "documented"),
    [
        ("CA", {"E": 0}, "BED", [(3, 2, UNI), (0, 1, SWAP)], [2]),
        ("C", {"E": 2, "F": 4}, "BAEDF", [(0, 1, SWAP)], []),
    ],
    ids=["fewer arrivals than departures", "more arrivals than departures"],
)
def test_an_update_is_as_the_engine_emits_it_and_as_it_is_documented(
    four: Any, gone: str, come: dict[str, int], rows: str, moved: list[Any], documented: list[int]
) -> None:
    batch, requests = four
    for name in gone:
        batch.remove(name)
    assert [batch.add(requests[name]) for name in come] == list(come.values())
    batch.condense()
    batch.swap(0, 1)
    assert [request.request_id for request in batch.requests] == list(rows)
    update = batch.take_update()
    added = [
        (row, requests[name].params, requests[name].prompt_token_ids, requests[name].output_token_ids)
        for name, row in come.items()
    ]
    assert update == BatchUpdate(len(rows), [], added, moved)
    assert documented_form(update) == BatchUpdate(len(rows), documented, added, moved)


def test_what_the_engine_forbids_is_refused(four: Any, make_request: Callable[..., Request]) -> None:
    batch, requests = four
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
