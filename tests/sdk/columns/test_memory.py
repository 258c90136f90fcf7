"""Columns of several processors in one memory: each has its own values, and one copy sends what changed of all."""

from __future__ import annotations

import copy
import gc
import pickle
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from lpkit.columns import memory as memory_module
from lpkit.columns.column import Arena, Declaration, column
from lpkit.columns.memory import Memory
from machines import STEADY
from sdk_hosts import recorded_ops

CPU = torch.device("cpu")


def rows(*slots: int) -> Any:
    return SimpleNamespace(slots=torch.tensor(slots), _gathered=None)


def separate(slots: int = 4) -> Memory:
    """Memory whose device's half is apart from the host's, as on a GPU."""
    made = Memory(slots, CPU)
    made._one_memory = False
    return made


def arena(memory: Memory, slots: int = 4, **declared: Declaration[Any]) -> Arena:
    return Arena(declared, slots, CPU, 8, memory)


def test_each_processor_has_its_own_values_and_defaults() -> None:
    memory = separate()
    one = arena(memory, bias=column(torch.float32, default=2.0), flag=column(torch.bool))
    other = arena(memory, bias=column(torch.float64, default=5.0, width=2))
    one.columns["bias"][1], other.columns["bias"][1], other.columns["bias"][2] = 7.0, (8.0, 9.0), 3.0
    one.flush()
    step = rows(0, 1, 2)
    assert one.columns["bias"][step].tolist() == [2.0, 7.0, 2.0]
    assert one.columns["flag"][step].tolist() == [False] * 3
    assert other.columns["bias"][step].tolist() == [[5.0, 5.0], [8.0, 9.0], [3.0, 3.0]]
    assert other.columns["bias"].all.tolist() == [[5.0, 5.0], [8.0, 9.0], [3.0, 3.0], [5.0, 5.0], [5.0, 5.0]]


def test_a_slot_that_one_resets_is_as_it_was_for_the_others() -> None:
    memory = separate()
    one, other = (arena(memory, bias=column(torch.float32, default=2.0)) for _ in range(2))
    one.columns["bias"][1] = other.columns["bias"][1] = 7.0
    one.reset(1)
    memory.flush()
    assert [made.columns["bias"][rows(1)].tolist() for made in (one, other)] == [[2.0], [7.0]]


def test_what_is_not_flushed_is_not_read() -> None:
    memory = separate()
    one, other = (arena(memory, bias=column(torch.float32)) for _ in range(2))
    other.flush()
    one.columns["bias"][1] = 7.0
    assert one.columns["bias"][rows(1)].tolist() == [0.0]
    other.flush()
    assert one.columns["bias"][rows(1)].tolist() == [7.0]


@pytest.mark.parametrize("small", [0, memory_module.SMALL])
def test_the_first_flush_of_a_step_sends_what_all_have_written(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "SMALL", small)
    memory = separate()
    several = [arena(memory, bias=column(torch.float32), pair=column(torch.int64, width=2)) for _ in range(3)]
    memory.flush()
    for number, made in enumerate(several):
        made.columns["bias"][number], made.columns["pair"][3] = float(number + 1), (number, 9)
    with recorded_ops() as first:
        several[2].flush()
    with recorded_ops() as later:
        several[0].flush()
        several[1].flush()
    assert first
    assert later == []
    for number, made in enumerate(several):
        assert made.columns["bias"].all.tolist() == [float(number + 1) if slot == number else 0.0 for slot in range(5)]
        assert made.columns["pair"][rows(3)].tolist() == [[number, 9]]


def test_a_list_that_outgrows_its_room_moves_the_values_of_all() -> None:
    memory = separate()
    one = arena(memory, ids=lpkit.ragged(torch.int64))
    other = arena(memory, bias=column(torch.float32, default=2.0))
    other.columns["bias"][1] = 7.0
    memory.flush()
    before = other.columns["bias"].all
    one.columns["ids"][2] = list(range(20))
    assert other.columns["bias"][rows(1)].tolist() == [7.0]  # where the step before reads it
    memory.flush()
    assert other.columns["bias"].all is not before
    assert other.columns["bias"][rows(1, 2)].tolist() == [7.0, 2.0]
    assert one.columns["ids"][rows(2)].tolist() == [[*range(20), *[-1] * 12]]


def test_the_room_of_a_processor_that_is_gone_is_given_to_the_next() -> None:
    memory = separate()
    arena(memory, wide=column(torch.int64, width=100))
    kept = arena(memory, bias=column(torch.float32, default=2.0))
    kept.columns["bias"][1] = 7.0
    gc.collect()
    arena(memory, flag=column(torch.bool))
    memory.flush()
    assert memory._words <= 2
    assert kept.columns["bias"][rows(1, 2)].tolist() == [7.0, 2.0]


def test_what_is_read_stays_while_another_processor_is_made() -> None:
    memory = separate()
    made = arena(memory, bias=column(torch.float32, default=2.0))
    made.columns["bias"][1] = 7.0
    memory.flush()
    arena(memory, wide=column(torch.int64, width=9))
    assert made.columns["bias"][rows(0, 1)].tolist() == [2.0, 7.0]


def test_what_was_gathered_before_parts_moved_is_gathered_again() -> None:
    memory = separate()
    long, made = arena(memory, ids=lpkit.ragged(torch.int64)), arena(memory, bias=column(torch.float32, default=2.0))
    memory.flush()
    step = rows(0, 1)
    assert long.columns["ids"][step].tolist() == [[-1], [-1]]
    long.columns["ids"][1] = [5, 6]
    memory.flush()
    assert made.columns["bias"][step].tolist() == [2.0, 2.0]


def test_memory_that_was_wide_when_a_processor_came_is_narrowed_all_the_same() -> None:
    memory = separate()
    long = arena(memory, ids=lpkit.ragged(torch.int64, limit=4000))
    long.columns["ids"][0] = list(range(4000))
    arena(memory, flag=column(torch.bool))
    long.columns["ids"][0] = [1]
    for _ in range(2 * memory_module.PATIENCE):
        long.columns["ids"][1] = [1]
        memory.flush()
    assert memory._words < 9


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_processors_own_memory_is_copied_with_it(duplicate: Any) -> None:
    made = Arena({"ids": lpkit.ragged(torch.int64)}, 4, CPU)
    other = duplicate(made)
    other.columns["ids"][1] = [4, 4, 4]
    other.flush()
    assert other.columns["ids"][rows(1)].tolist() == [[4, 4, 4, -1]]
    assert made.columns["ids"][rows(1)].tolist() == [[-1]]


class Neighbours(RuleBasedStateMachine):
    """Lists and numbers of three processors against dictionaries, some of them flushed and some not."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = separate()
        self.arenas = [
            arena(self.memory, ids=lpkit.ragged(torch.int64), bias=column(torch.float32, default=number))
            for number in range(3)
        ]
        self.lists: dict[tuple[int, int], list[int]] = {}
        self.biases: dict[tuple[int, int], float] = {}

    @rule(who=st.integers(0, 2), slot=st.integers(0, 3), ids=st.lists(st.integers(0, 99), max_size=20))
    def list_ids(self, who: int, slot: int, ids: list[int]) -> None:
        self.arenas[who].columns["ids"][slot] = self.lists[who, slot] = ids

    @rule(who=st.integers(0, 2), slot=st.integers(0, 3), bias=st.integers(-9, 9))
    def set_bias(self, who: int, slot: int, bias: int) -> None:
        self.arenas[who].columns["bias"][slot] = self.biases[who, slot] = float(bias)

    @rule(who=st.integers(0, 2), slot=st.integers(0, 3))
    def reset(self, who: int, slot: int) -> None:
        self.arenas[who].reset(slot)
        self.lists.pop((who, slot), None)
        self.biases.pop((who, slot), None)

    @invariant()
    def each_reads_its_own(self) -> None:
        self.arenas[len(self.lists) % 3].flush()
        for who, made in enumerate(self.arenas):
            step = rows(3, 1, 0, 2)
            found = made.columns["ids"][step].tolist()
            assert [[token for token in ids if token >= 0] for ids in found] == [
                self.lists.get((who, slot), []) for slot in (3, 1, 0, 2)
            ]
            assert made.columns["bias"][step].tolist() == [self.biases.get((who, slot), who) for slot in (3, 1, 0, 2)]


TestNeighbours = Neighbours.TestCase
TestNeighbours.settings = STEADY
