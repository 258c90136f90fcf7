"""Lists and sets per request: each slot its own, padded for the longest, nothing left for the next occupant."""

from __future__ import annotations

from typing import Any

import lpkit
import pytest
import torch
from arenas import VOCAB, arena, rows
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from lpkit.columns import token_set
from lpkit.columns.column import column
from machines import STEADY

SLOTS, IDS = st.integers(0, 3), st.integers(0, VOCAB - 1)


def test_a_list_that_could_not_be_written_leaves_nothing_of_a_longer_one_either() -> None:
    made = arena(ids=lpkit.ragged(torch.int64))
    ids = made.columns["ids"]
    ids[1] = [1, 2, 3, 4]
    with pytest.raises(ValueError, match="invalid literal"):
        ids[1] = ["one", "two"]
    ids[1] = [9, 8, 7]
    assert ids[rows(1)].tolist() == [[9, 8, 7, -1]]


def test_a_list_over_the_limit_is_refused() -> None:
    made = arena(ids=lpkit.ragged(torch.int64, limit=3))
    with pytest.raises(ValueError, match="4 values; at most 3"):
        made.columns["ids"][0] = [1, 2, 3, 4]
    with pytest.raises(ValueError, match="limit must be at least 1"):
        lpkit.ragged(torch.int64, limit=0)


def test_equal_sets_share_a_mask() -> None:
    made = arena(chosen=lpkit.token_set())
    chosen: Any = made.columns["chosen"]
    for slot in range(4):
        chosen[slot] = [3, 1] if slot % 2 else [1, 3]
    assert chosen.all.shape[0] == 2  # the empty set, and this one


class Collections(RuleBasedStateMachine):
    """A set and a list per slot against a dictionary of lists."""

    def __init__(self) -> None:
        super().__init__()
        made = arena(among=lpkit.token_set(), listed=lpkit.ragged(torch.int64, limit=VOCAB))
        self.among: Any = made.columns["among"]
        self.listed = made.columns["listed"]
        self.held: dict[int, list[int]] = {slot: [] for slot in range(4)}

    @initialize(short=st.sampled_from([2, token_set.SHORT]))
    def start(self, short: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(token_set, "SHORT", short)

    def teardown(self) -> None:
        self.patch.undo()

    @rule(slot=SLOTS, ids=st.lists(IDS, max_size=8) | st.sets(IDS, max_size=8))
    def write(self, slot: int, ids: list[int] | set[int]) -> None:
        self.among[slot] = self.listed[slot] = ids
        self.held[slot] = sorted(ids) if isinstance(ids, set) else ids

    @rule(slot=SLOTS, other=SLOTS)
    def write_what_another_has(self, slot: int, other: int) -> None:
        self.write(slot, set(self.held[other]))

    @rule(slot=SLOTS)
    def reset(self, slot: int) -> None:
        self.among.reset(slot)
        self.listed.reset(slot)
        self.held[slot] = []

    @rule(slot=SLOTS, wrong=st.sampled_from([-1, VOCAB]))
    def write_what_is_refused(self, slot: int, wrong: int) -> None:
        with pytest.raises(ValueError, match="outside"):
            self.among[slot] = [0, wrong]
        with pytest.raises(ValueError, match="at most"):
            self.listed[slot] = range(VOCAB + 1)

    @invariant()
    def each_slot_has_its_own(self) -> None:
        order = [3, 1, 0, 2]
        held = [self.held[slot] for slot in order]
        width = 1 << (max(1, *map(len, held)) - 1).bit_length()
        assert self.listed[rows(*order)].tolist() == [ids + [-1] * (width - len(ids)) for ids in held]
        masks = self.among[rows(*order)]
        assert [mask.nonzero().flatten().tolist() for mask in masks] == [sorted({*ids}) for ids in held]
        every = torch.arange(-1, VOCAB + 64).expand(4, -1)
        there = self.among.contains(rows(*order), every)
        assert torch.equal(there[:, 1 : VOCAB + 1], masks) and not there[:, [0, *range(VOCAB + 1, VOCAB + 65)]].any()
        assert self.among.all.shape[0] <= 8  # four sets and the empty one, in a table that doubles

    @invariant()
    def only_members_keep_their_logits(self) -> None:
        logits = torch.arange(4.0 * VOCAB).view(4, VOCAB)
        kept = self.among.keep_only_(logits.clone(), rows(0, 1, 2, 3)).isfinite()
        assert [row.nonzero().flatten().tolist() for row in kept] == [
            sorted({*self.held[slot]}) or list(range(VOCAB)) for slot in range(4)
        ]


class TestCollections(Collections.TestCase):
    settings = STEADY


def test_only_changed_rows_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    copy = torch.Tensor.index_copy_
    monkeypatch.setattr(
        torch.Tensor,
        "index_copy_",
        lambda self, dim, index, block: sent.append(len(block)) or copy(self, dim, index, block),
    )
    made = arena(4000, "meta", ids=lpkit.ragged(torch.int64), chosen=lpkit.token_set())
    ids, chosen = made.columns["ids"], made.columns["chosen"]
    ids[0] = [1, 2, 3]
    chosen[0] = [4]
    made.flush()
    sent.clear()
    made.flush()
    assert sent == []
    ids[1], ids[2] = [1], [2]
    made.flush()
    assert sent == [2]
    chosen[1] = [4]
    made.flush()
    assert sent == [2, 1]  # the number of the mask and the list; the mask itself is there already


def test_rows_do_not_stay_wide_for_a_list_that_left() -> None:
    made = arena(ids=lpkit.ragged(torch.int64), flag=column(torch.int64))
    ids, flag = made.columns["ids"], made.columns["flag"]
    ids[0] = range(500)
    made.flush()
    ids.reset(0)
    widths = set()
    for number in range(200):
        flag[1] = number
        ids[2] = [7, number]
        made.flush()
        widths.add(made.columns["flag"].all.stride(0))
        assert (ids[rows(2, 0)].tolist(), flag[rows(1)].tolist()) == ([[7, number], [-1, -1]], [number])
    assert widths == {513, 3}


@pytest.mark.parametrize("given", [[3, 5], (3, 5), {5, 3}, frozenset({5, 3}), range(3, 6, 2)], ids=repr)
def test_any_collection_of_ids_fills_a_list_and_a_set(given: Any) -> None:
    made = arena(listed=lpkit.ragged(torch.int64), among=lpkit.token_set())
    made.columns["listed"][1] = made.columns["among"][1] = given
    assert made.columns["listed"][rows(1)].tolist() == [[3, 5]]
    assert made.columns["among"][rows(1)].nonzero()[:, 1].tolist() == [3, 5]


def test_the_mask_of_a_set_stays_until_another_set_needs_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(chosen=lpkit.token_set())
    chosen: Any = made.columns["chosen"]
    written: list[int] = []
    write = type(chosen._masks).write
    monkeypatch.setattr(
        type(chosen._masks), "write", lambda self, row, values: written.append(row) or write(self, row, values)
    )
    for ids in ([4], [], [4], [7], [4]):  # of one request after the other
        made.reset(0)
        chosen[0] = ids
        made.flush()
        assert chosen[rows(0)].nonzero()[:, 1].tolist() == ids
    assert written == [1, 1, 1], "the second request with the set found its mask"


def test_columns_have_another_layout_when_a_long_set_comes_or_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_set, "SHORT", 2)
    made = arena(chosen=lpkit.token_set())
    chosen: Any = made.columns["chosen"]
    chosen[0] = [1]
    layouts, lists = [], []
    for ids in ([1, 2, 3], [1], [2]):
        chosen[1] = ids
        layouts.append(made.layout)
        lists.append(chosen.short_lists is not None)
    assert lists == [False, True, True]
    assert layouts[0] != layouts[1] and layouts[1] == layouts[2]
