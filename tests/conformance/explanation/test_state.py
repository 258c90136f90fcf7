"""State of a plugin: texts of its values, parts that are set and set back, copies."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from lpkit_conformance.explanation.state import MISSING, State, short_text, state_of


@pytest.mark.parametrize("value", [12, np.int64(12), np.array(12), torch.tensor(12)])
def test_a_number_reads_the_same_from_whatever_holds_it(value: Any) -> None:
    assert short_text(value) == "12"


class Kept:
    """An object that closes what it has opened when it goes."""

    def __init__(self) -> None:
        self.open = [True]

    def __del__(self) -> None:
        self.open.clear()


def counter() -> Any:
    count = 1
    return lambda: count


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        ({5: "a"}, "o[5]", MISSING),
        ({5: "a"}, "o[5]", "b"),
        ([1, 2], "o[#]", 7),
        (torch.tensor([1.0, 2.0]), "o[#]", 7.0),
        (counter(), "count", 7),
    ],
)
def test_what_is_set_for_an_experiment_can_be_set_back(owner: Any, name: str, value: Any) -> None:
    parts = state_of("o", owner, 1)
    before = State.copied(parts).get(name)
    undo = parts.put_value(name, value)
    assert state_of("o", owner, 1).get(name) is value or state_of("o", owner, 1).get(name) == value
    undo()
    assert state_of("o", owner, 1).get(name) == before


def test_a_copy_of_an_object_closes_nothing_when_it_goes() -> None:
    kept = Kept()
    parts = state_of("o", {5: kept}, 1)
    copied = parts.copied()
    assert copied.get("o[5]").open == [True]
    del copied
    gc.collect()
    assert kept.open == [True]
