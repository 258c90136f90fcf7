"""Defects that LP204 must catch."""

from __future__ import annotations

from lpkit.v1 import BatchUpdate

from zoo.bases import Clean
from zoo.correct.v1 import SWAP, ByHand
from zoo.registry import defect


@defect("LP204", "a one-way move copies: the source keeps its entry, which shows when the row is used again")
class MoveCopies(Clean):
    def move(self, source: int, target: int) -> None:
        self.place(target, self.rows.get(source))


@defect("LP204", "carries out the last one-way move of an update only")
class LastMoveOnly(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        one_way = [(source, target) for source, target, kind in update.moved if kind is not SWAP]
        for source, target in one_way[-1:]:
            self.move(source, target)
        for source, target in one_way[:-1]:
            self.rows.pop(source, None)
            self.rows.pop(target, None)
        for first, second, kind in update.moved:
            if kind is SWAP:
                self.swap(first, second)
