"""Common part of the state machines in the SDK's tests."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from lpkit.runtime import Request, V1Batch
from lpkit.v1 import BatchUpdate, MoveDirectionality
from sdk_hosts import params

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=60, stateful_step_count=30)
"""The same programs in every run, on a machine of any speed."""

ASKED: tuple[dict[str, Any], ...] = ({}, {"add": 1.0}, {"weigh": True}, {"add": 2.0, "weigh": True})
"""The arguments of a request: those of Add and Weigh in ``sdk_plugins``, or none."""


def documented_form(update: BatchUpdate) -> BatchUpdate:
    """``update`` as vLLM's documentation writes it: ``removed`` also lists the destinations of one-way moves."""
    filled = [move[1] for move in update.moved if move[2] is MoveDirectionality.UNIDIRECTIONAL]
    removed = sorted({*update.removed, *filled}, reverse=True)
    return BatchUpdate(update.batch_size, removed, update.added, update.moved)


class V1Traffic(RuleBasedStateMachine):
    """Requests come, leave and move as in V1's batch; updates have the engine's form or that of its documentation."""

    @initialize(size=st.integers(1, 6), documented=st.booleans())
    def start(self, size: int, documented: bool) -> None:
        self.batch = V1Batch(size)
        self.documented = documented
        self.born = 0
        self.begin(size)

    def begin(self, size: int) -> None:
        """Make whatever follows the batch."""
        raise NotImplementedError

    def follow(self, update: BatchUpdate) -> None:
        """Follow the batch."""
        raise NotImplementedError

    @rule(
        leave=st.sets(st.integers(0, 5)),
        arrive=st.lists(st.sampled_from(ASKED), max_size=6),
        swaps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=3),
    )
    def change(self, leave: set[int], arrive: list[dict[str, Any]], swaps: list[tuple[int, int]]) -> None:
        gone = [request.request_id for row, request in enumerate(self.batch.requests) if row in leave]
        left = len(self.batch) - len(gone)
        come = [self.newcomer(args) for args in arrive[: self.batch.max_num_reqs - left]]
        pairs = [pair for pair in swaps if max(pair) < left + len(come)]
        update = self.batch.change(gone, come, pairs)
        if update is not None:
            self.follow(documented_form(update) if self.documented else update)

    def newcomer(self, args: dict[str, Any]) -> Request:
        self.born += 1
        return Request(f"r{self.born}", params(**args), [1, 2 + self.born % 9])
