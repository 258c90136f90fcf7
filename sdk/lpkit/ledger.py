"""Which request sits in which row of V1's batch, for the requests a processor admitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lpkit.v1 import MoveDirectionality

if TYPE_CHECKING:
    from lpkit.sampling_params import SamplingParams
    from lpkit.v1 import BatchUpdate


@dataclass(frozen=True)
class Entry:
    """An admitted request. ``output_ids`` is the engine's live list; both lists belong to the engine."""

    slot: int
    prompt_ids: list[int] | None
    output_ids: list[int]


Admit = Callable[[int, "SamplingParams", "list[int] | None"], bool]
"""(slot, params, prompt ids) -> whether the request concerns the processor."""


class Ledger:
    """Rows to slots. A slot is held from admission until the request leaves, wherever its row moves.

    Args:
        slots: number of slots, at least the largest batch.
        release: called with a slot that became free.
    """

    def __init__(self, slots: int, release: Callable[[int], None]) -> None:
        self.rows: dict[int, Entry] = {}
        self._free = list(range(slots - 1, -1, -1))
        self._release = release

    def update(self, update: BatchUpdate, admit: Admit) -> bool:
        """Apply one batch update: removals, additions, then moves in order. True if a row changed."""
        rows = self.rows
        changed = False
        if rows:
            for row in update.removed:
                changed |= self._drop(rows.pop(row, None))
        for row, params, prompt_ids, output_ids in update.added:
            if rows:  # an Add at an occupied row replaces its request without a Remove
                changed |= self._drop(rows.pop(row, None))
            slot = self._free[-1]
            if admit(slot, params, prompt_ids):
                self._free.pop()
                rows[row] = Entry(slot, prompt_ids, output_ids)
                changed = True
        if rows:
            for source, destination, kind in update.moved:
                moving, displaced = rows.pop(source, None), rows.pop(destination, None)
                if moving is not None:
                    rows[destination] = moving
                if displaced is not None:
                    if kind is MoveDirectionality.SWAP:
                        rows[source] = displaced
                    else:
                        self._drop(displaced)
                changed |= moving is not None or displaced is not None
        return changed

    def _drop(self, entry: Entry | None) -> bool:
        if entry is None:
            return False
        self._free.append(entry.slot)
        self._release(entry.slot)
        return True
