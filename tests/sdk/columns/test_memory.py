"""Columns in memory of their own on the device: what is staged, sent, moved and read."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import lpkit
import pytest
import torch
from arenas import arena, rows, separate
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from lpkit.columns import memory as memory_module
from lpkit.columns.column import column
from machines import STEADY


@pytest.mark.parametrize("small", [0, memory_module.SMALL])
def test_what_is_not_flushed_is_not_read(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "SMALL", small)
    made = separate(bias=column(torch.float32), pair=column(torch.int64, width=2))
    made.columns["bias"][1], made.columns["pair"][3] = 7.0, (2, 9)
    assert made.columns["bias"][rows(1)].tolist() == [0.0]
    made.flush()
    assert made.columns["bias"][rows(1, 0)].tolist() == [7.0, 0.0]
    assert made.columns["pair"].all.tolist() == [[0, 0], [0, 0], [0, 0], [2, 9], [0, 0]]


def test_a_list_that_outgrows_its_room_moves_the_values_of_all() -> None:
    made = separate(ids=lpkit.ragged(torch.int64), bias=column(torch.float32, default=2.0))
    made.columns["bias"][1] = 7.0
    made.flush()
    before = made.columns["bias"].all
    made.columns["ids"][2] = list(range(20))
    assert made.columns["bias"][rows(1)].tolist() == [7.0]  # read from the old memory until the flush
    made.flush()
    assert made.columns["bias"].all is not before
    assert made.columns["bias"][rows(1, 2)].tolist() == [7.0, 2.0]
    assert made.columns["ids"][rows(2)].tolist() == [[*range(20), *[-1] * 12]]


def test_what_was_gathered_before_columns_moved_is_gathered_again() -> None:
    made = separate(ids=lpkit.ragged(torch.int64), bias=column(torch.float32, default=2.0))
    step = rows(0, 1)
    assert made.columns["ids"][step].tolist() == [[-1], [-1]]
    made.columns["ids"][1] = [5, 6]
    made.flush()
    assert made.columns["bias"][step].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_processors_own_memory_is_copied_with_it(duplicate: Any) -> None:
    made = arena(ids=lpkit.ragged(torch.int64))
    other = duplicate(made)
    other.columns["ids"][1] = [4, 4, 4]
    other.flush()
    assert other.columns["ids"][rows(1)].tolist() == [[4, 4, 4, -1]]
    assert made.columns["ids"][rows(1)].tolist() == [[-1]]


class Slots(RuleBasedStateMachine):
    """Lists, numbers and pairs of an arena against dictionaries, some of them flushed and some not."""

    def __init__(self) -> None:
        super().__init__()
        pair = column(torch.bool, default=True, width=2)
        self.arena = separate(ids=lpkit.ragged(torch.int64), bias=column(torch.float32, default=2.0), pair=pair)
        self.held: dict[str, dict[int, Any]] = {"ids": {}, "bias": {}, "pair": {}}

    def write(self, name: str, slot: int, value: Any) -> None:
        self.arena.columns[name][slot] = self.held[name][slot] = value

    @rule(slot=st.integers(0, 3), ids=st.lists(st.integers(0, 99), max_size=20))
    def list_ids(self, slot: int, ids: list[int]) -> None:
        self.write("ids", slot, ids)

    @rule(slot=st.integers(0, 3), bias=st.integers(-9, 9), pair=st.lists(st.booleans(), min_size=2, max_size=2))
    def set_numbers(self, slot: int, bias: int, pair: list[bool]) -> None:
        self.write("bias", slot, float(bias))
        self.write("pair", slot, pair)

    @rule(slot=st.integers(0, 3))
    def reset(self, slot: int) -> None:
        self.arena.reset(slot)
        for held in self.held.values():
            held.pop(slot, None)

    @invariant()
    def each_slot_has_its_values(self) -> None:
        self.arena.flush()
        order, columns = (3, 1, 0, 2), self.arena.columns
        step = rows(*order)
        ids = [[token for token in ids if token >= 0] for ids in columns["ids"][step].tolist()]
        assert ids == [self.held["ids"].get(slot, []) for slot in order]
        assert columns["bias"][step].tolist() == [self.held["bias"].get(slot, 2.0) for slot in order]
        assert columns["pair"][step].tolist() == [self.held["pair"].get(slot, [True, True]) for slot in order]


TestSlots = Slots.TestCase
TestSlots.settings = STEADY
