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

    Attributes:
        entries: the admitted request of each row; None for other rows.
        held: number of admitted requests.
    """

    def __init__(self, slots: int, release: Callable[[int], None], keys: frozenset[str] | None = None) -> None:
        self.entries: list[AdmittedRequest | None] = [None] * slots
        self.held = 0
        self._keys = keys
        self._free = list(range(slots - 1, -1, -1))
        self._release = release

    def update(self, update: BatchUpdate, admit: Admit) -> set[int]:
        """Apply one batch update: removals, additions, then moves in order. Return the rows that changed."""
        # This loop runs in every step, for all new requests; most do not use the processor.
        entries, keys = self.entries, self._keys
        changed: set[int] = set()
        if self.held:
            for row in update.removed:
                if entries[row] is not None:
                    self._drop(row)
                    changed.add(row)
        for row, params, prompt_ids, output_ids in update.added:
            if entries[row] is not None:  # an Add at an occupied row replaces its request without a Remove
                self._drop(row)
                changed.add(row)
            if keys is not None:
                args = params.extra_args
                if not args or keys.isdisjoint(args):
                    continue
            slot = self._free[-1]
            if admit(slot, params, prompt_ids):
                self._free.pop()
                self.held += 1
                entries[row] = AdmittedRequest(slot, prompt_ids, output_ids)
                changed.add(row)
        if self.held:
            for source, destination, kind in update.moved:
                moving, displaced = entries[source], entries[destination]
                if moving is None and displaced is None:
                    continue
                changed |= {source, destination}
                swapped = kind is MoveDirectionality.SWAP
                if displaced is not None and not swapped:
                    self._drop(destination)
                entries[destination], entries[source] = moving, displaced if swapped else None
        return changed

    def _drop(self, row: int) -> None:
        entry = self.entries[row]
        assert entry is not None
        self.entries[row] = None
        self.held -= 1
        self._free.append(entry.slot)
        self._release(entry.slot)
