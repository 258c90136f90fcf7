"""Arrangements of rows as V1 updates: they lead where they should, and look as the V1 engine's own."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from lpkit.bridging.row_updates import RowUpdates
from lpkit.history.on_host import V1Row
from lpkit.v1 import BatchUpdate, MoveDirectionality, process_dict_updates
from machines import STEADY

SWAP, ONE_WAY = MoveDirectionality.SWAP, MoveDirectionality.UNIDIRECTIONAL


def row(name: str) -> V1Row:
    return V1Row(name, [], [])


def replay(state: dict[int, Any], update: BatchUpdate | None) -> dict[int, Any]:
    """Return the state that vLLM's own helper keeps after an update."""
    process_dict_updates(state, update, lambda params, prompt, output: params)
    return state


def check_form(update: BatchUpdate) -> None:
    """Check the invariants of every update of vLLM's own InputBatch."""
    assert list(update.removed) == sorted(update.removed, reverse=True)
    assert all(update.batch_size <= index for index in update.removed)
    added = [item[0] for item in update.added]
    assert not set(update.removed) & set(added)
    assert len(set(added)) == len(added)
    one_way = [(source, target) for source, target, kind in update.moved if kind is ONE_WAY]
    swaps = [(source, target) for source, target, kind in update.moved if kind is SWAP]
    assert [move[2] for move in update.moved] == [ONE_WAY] * len(one_way) + [SWAP] * len(swaps)
    assert all(source >= update.batch_size > target for source, target in one_way)
    assert [source for source, _ in one_way] == sorted((source for source, _ in one_way), reverse=True)
    assert [target for _, target in one_way] == sorted(target for _, target in one_way)
    assert all(max(pair) < update.batch_size and pair[0] != pair[1] for pair in swaps)


class Arrangements(RuleBasedStateMachine):
    """Any arrangement after any other: vLLM's own helper arrives at it, by updates of the engine's form."""

    def __init__(self) -> None:
        super().__init__()
        self.updates = RowUpdates()
        self.state: dict[int, Any] = {}
        self.batch: list[V1Row] = []
        self.born = 0

    @rule(leave=st.sets(st.integers(0, 9)), arrive=st.integers(0, 4), shuffle=st.booleans(), data=st.data())
    def arrange(self, leave: set[int], arrive: int, shuffle: bool, data: st.DataObject) -> None:
        self.batch = [item for index, item in enumerate(self.batch) if index not in leave]
        self.batch += [row(f"{self.born + i}") for i in range(arrive)]
        self.born += arrive
        if shuffle:
            self.batch = data.draw(st.permutations(self.batch))
        update = self.updates.arrange(list(self.batch))
        if update is not None:
            assert update.batch_size == len(self.batch)
            check_form(update)
        replay(self.state, update)

    @invariant()
    def the_rows_are_the_batch(self) -> None:
        assert self.state == {index: item.params for index, item in enumerate(self.batch)}
        assert self.updates.arrange(list(self.batch)) is None


class TestArrangements(Arrangements.TestCase):
    settings = STEADY


def test_a_row_made_anew_is_another_request() -> None:
    updates, a = RowUpdates(), V1Row("a", [1], [2])
    updates.arrange([a])
    again = V1Row("a", [1], [2, 3])
    update = updates.arrange([again])
    assert update is not None
    assert list(update.added) == [(0, "a", [1], [2, 3])]
    assert update.added[0][3] is again.output_ids
