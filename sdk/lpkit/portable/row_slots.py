"""Maps rows of V1's batch to the slots of admitted requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lpkit.history.staged import AdmittedRequest
from lpkit.v1 import MoveDirectionality

if TYPE_CHECKING:
    from lpkit.sampling_params import SamplingParams
    from lpkit.v1 import BatchUpdate


Admit = Callable[[int, "SamplingParams", "list[int] | None"], bool]
"""(slot, params, prompt ids) -> True if the request is admitted."""


class Ledger:
    """Maps rows to slots. A request holds its slot from admission until it leaves, even if its row moves.

    Args:
        slots: number of slots, at least the largest batch.
        release: called with a slot that became free.
        keys: requests without any of these in their ``extra_args`` do not use the processor; None: any request may.
    """

    def __init__(self, slots: int, release: Callable[[int], None], keys: frozenset[str] | None = None) -> None:
        self.rows: dict[int, AdmittedRequest] = {}
        self._keys = keys
        self._free = list(range(slots - 1, -1, -1))
        self._release = release

    def update(self, update: BatchUpdate, admit: Admit) -> bool:
        """Apply one batch update: removals, additions, then moves in order. Return True if a row changed."""
        # This loop runs in every step, for all new requests; most do not use the processor.
        rows, keys = self.rows, self._keys
        changed = False
        if rows:
            for row in rows.keys() & update.removed:
                self._drop(row)
                changed = True
        for row, params, prompt_ids, output_ids in update.added:
            if row in rows:  # an Add at an occupied row replaces its request without a Remove
                self._drop(row)
                changed = True
            if keys is not None:
                args = params.extra_args
                if not args or keys.isdisjoint(args):
                    continue
            slot = self._free[-1]
            if admit(slot, params, prompt_ids):
                self._free.pop()
                rows[row] = AdmittedRequest(slot, prompt_ids, output_ids)
                changed = True
        if rows:
            for source, destination, kind in update.moved:
                if source not in rows and destination not in rows:
                    continue
                changed = True
                moving, displaced = rows.pop(source, None), rows.get(destination)
                if displaced is not None:
                    if kind is MoveDirectionality.SWAP:
                        rows[source] = rows.pop(destination)
                    else:
                        self._drop(destination)
                if moving is not None:
                    rows[destination] = moving
        return changed

    def _drop(self, row: int) -> None:
        slot = self.rows.pop(row).slot
        self._free.append(slot)
        self._release(slot)
