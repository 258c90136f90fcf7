"""Calls that V1's persistent batch refuses; test_regenerate.py and ``tests/engine`` have it follow vLLM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lpkit.runtime import Request, V1Batch


@pytest.fixture
def four(make_request: Callable[..., Request]) -> tuple[V1Batch, dict[str, Request]]:
    """[A, B, C, D] and two more requests."""
    requests = {name: make_request(name) for name in "ABCDEF"}
    batch = V1Batch(8)
    for name in "ABCD":
        batch.add(requests[name])
    batch.take_update()
    return batch, requests


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
