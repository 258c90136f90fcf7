"""Defects that LP203 must catch."""

from __future__ import annotations

from lpkit.v1 import BatchUpdate

from zoo.bases import Clean
from zoo.registry import defect


@defect("LP203", "forgets the first of the removed rows only")
class OneRemoval(Clean):
    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed[:1]:
            self.rows.pop(row, None)


@defect("LP203", "a removed row is kept for later, in case the request resumes")
class KeepsRemoved(Clean):
    def removals(self, update: BatchUpdate) -> None:
        self.occupied.difference_update(update.removed)
