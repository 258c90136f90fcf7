"""Keeps rows as the V1 engine does, and reports changes between two calls as V1's ``BatchUpdate``."""

from __future__ import annotations

from collections import deque

from lpkit.history.on_host import V1Row
from lpkit.v1 import BatchUpdate, MoveDirectionality


class RowUpdates:
    """Turns each new arrangement of rows into the update that leads from the previous one."""

    def __init__(self) -> None:
        self._rows: list[V1Row] = []

    def arrange(self, wanted: list[V1Row]) -> BatchUpdate | None:
        """Return the update that makes row ``i`` hold ``wanted[i]``; None if nothing changes.

        Order and form are the V1 engine's. Additions take the lowest freed row and replace silently. Gaps are closed
        from the end, and swaps come last. ``removed`` lists, descending, only rows that stay empty.
        """
        if self._rows == wanted:
            return None
        stays = set(wanted)
        present = set(self._rows)
        rows: list[V1Row | None] = [row if row in stays else None for row in self._rows]
        free = deque(index for index, row in enumerate(rows) if row is None)
        added = []
        for row in wanted:
            if row in present:
                continue
            index = free.popleft() if free else len(rows)
            if index == len(rows):
                rows.append(row)
            rows[index] = row
            added.append((index, row.params, row.prompt_ids, row.output_ids))
        moved = _condense(rows, free) + _swap(rows, wanted)
        self._rows = list(wanted)
        return BatchUpdate(batch_size=len(wanted), removed=sorted(free, reverse=True), added=added, moved=moved)


Moves = list[tuple[int, int, MoveDirectionality]]


def _condense(rows: list[V1Row | None], free: deque[int]) -> Moves:
    """Move the last row into the lowest gap until no gap is below it; ``free`` keeps the rows that stay empty."""
    moved: Moves = []
    last = len(rows) - 1
    while free:
        while last >= 0 and rows[last] is None:
            last -= 1
        if free[0] >= last:
            break
        gap = free.popleft()
        rows[gap], rows[last] = rows[last], None
        moved.append((last, gap, MoveDirectionality.UNIDIRECTIONAL))
    return moved


def _swap(rows: list[V1Row | None], wanted: list[V1Row]) -> Moves:
    moved: Moves = []
    index_of = {row: index for index, row in enumerate(rows) if row is not None}
    for index, row in enumerate(wanted):
        source = index_of[row]
        if source == index:
            continue
        displaced = rows[index]
        assert displaced is not None
        rows[index], rows[source] = row, displaced
        index_of[displaced] = source
        moved.append((index, source, MoveDirectionality.SWAP))
    return moved
