"""Columns in memory of their own on the device: what is staged, sent, moved and read."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from lpkit.columns import memory as memory_module
from lpkit.columns.column import Declaration, column
from lpkit.columns.memory import Arena
from machines import STEADY

CPU = torch.device("cpu")


def rows(*slots: int) -> Any:
    return SimpleNamespace(slots=torch.tensor(slots), _gathered=None)


def separate(**declared: Declaration[Any]) -> Arena:
    """An arena whose device's half is apart from the host's, as on a GPU."""
    made = Arena(declared, 4, CPU, 8)
    made._on_host = False
    made.flush()
    return made


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
    made = Arena({"ids": lpkit.ragged(torch.int64)}, 4, CPU)
    other = duplicate(made)
    other.columns["ids"][1] = [4, 4, 4]
    other.flush()
    assert other.columns["ids"][rows(1)].tolist() == [[4, 4, 4, -1]]
    assert made.columns["ids"][rows(1)].tolist() == [[-1]]


class Slots(RuleBasedStateMachine):
    """Lists and numbers of an arena against dictionaries, some of them flushed and some not."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = separate(ids=lpkit.ragged(torch.int64), bias=column(torch.float32, default=2.0))
        self.lists: dict[int, list[int]] = {}
        self.biases: dict[int, float] = {}

    @rule(slot=st.integers(0, 3), ids=st.lists(st.integers(0, 99), max_size=20))
    def list_ids(self, slot: int, ids: list[int]) -> None:
        self.arena.columns["ids"][slot] = self.lists[slot] = ids

    @rule(slot=st.integers(0, 3), bias=st.integers(-9, 9))
    def set_bias(self, slot: int, bias: int) -> None:
        self.arena.columns["bias"][slot] = self.biases[slot] = float(bias)

    @rule(slot=st.integers(0, 3))
    def reset(self, slot: int) -> None:
        self.arena.reset(slot)
        self.lists.pop(slot, None)
        self.biases.pop(slot, None)

    @invariant()
    def each_slot_has_its_values(self) -> None:
        self.arena.flush()
        step = rows(3, 1, 0, 2)
        found = self.arena.columns["ids"][step].tolist()
        assert [[token for token in ids if token >= 0] for ids in found] == [
            self.lists.get(slot, []) for slot in (3, 1, 0, 2)
        ]
        assert self.arena.columns["bias"][step].tolist() == [self.biases.get(slot, 2.0) for slot in (3, 1, 0, 2)]


TestSlots = Slots.TestCase
TestSlots.settings = STEADY
