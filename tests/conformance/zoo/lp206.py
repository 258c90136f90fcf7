"""Defects that LP206 must catch."""

from __future__ import annotations

from lpkit.v1 import BatchUpdate

from zoo.correct.v1 import SWAP, ByHand
from zoo.registry import defect


@defect(
    "LP206",
    "moves from a snapshot: a chain of swaps loses track",
    line="self.place(target, before.get(source))",
    advice="swap",
)
class MovesFromSnapshot(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        before = dict(self.rows)
        for source, target, kind in update.moved:
            if kind is SWAP:
                self.place(source, before.get(target))
                self.place(target, before.get(source))
            else:
                self.move(source, target)


@defect("LP206", "swaps before one-way moves", advice="order")
class SwapsFirst(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for first, second, kind in sorted(update.moved, key=lambda move: move[2] is not SWAP):
            (self.swap if kind is SWAP else self.move)(first, second)


@defect("LP206", "a dict of moves by source: the second move from a row replaces the first")
class MovesBySource(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for source, (target, kind) in {source: (target, kind) for source, target, kind in update.moved}.items():
            (self.swap if kind is SWAP else self.move)(source, target)


@defect(
    "LP206",
    "additions after the moves, though their rows are those of before",
    line="self.moves(batch_update)",
    advice="order",
)
class AddsLast(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self.removals(batch_update)
            self.moves(batch_update)
            self.additions(batch_update)
