"""V1's persistent batch: the row of each request, and the ``BatchUpdate`` of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lpkit.v1 import BatchUpdate, BatchUpdateBuilder, MoveDirectionality

if TYPE_CHECKING:
    from lpkit.runtime.batch.request import Request


class V1Batch:
    """Rows of requests, changed in the engine's order: removals, additions, :meth:`condense`, swaps.

    A step ends with :meth:`take_update`, which reports the changes as the engine does. A row that was freed and filled
    again, by an addition or a condense move, is not in ``removed``.

    Args:
        max_num_reqs: number of rows.
    """

    def __init__(self, max_num_reqs: int) -> None:
        self.max_num_reqs = max_num_reqs
        self._rows: list[Request | None] = []
        self._index: dict[str, int] = {}
        self._builder = BatchUpdateBuilder()

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._index

    @property
    def requests(self) -> list[Request]:
        """The requests, by row.

        Raises:
            RuntimeError: between a removal and :meth:`condense`, when rows may be empty.
        """
        if len(self._rows) != len(self._index):
            raise RuntimeError("the batch has empty rows: call condense() first")
        return self._rows  # type: ignore[return-value]

    def row(self, request_id: str) -> int:
        """Return the row of the request ``request_id``, or raise KeyError."""
        return self._index[request_id]

    def change(
        self, leaving: Iterable[str], arriving: Iterable[Request], swaps: Iterable[tuple[int, int]] = ()
    ) -> BatchUpdate | None:
        """Run a whole step, in the engine's order.

        Args:
            leaving: ids of requests that leave.
            arriving: new and resumed requests.
            swaps: pairs of rows to exchange, numbered as after the condense moves.

        Returns:
            The step's update, or None if nothing changed.
        """
        for request_id in leaving:
            self.remove(request_id)
        for request in arriving:
            self.add(request)
        self.condense()
        for first, second in swaps:
            self.swap(first, second)
        return self.take_update()

    def add(self, request: Request) -> int:
        """Put a request into the lowest freed row, or behind the last row.

        Args:
            request: a new or resumed request.

        Returns:
            The row.

        Raises:
            ValueError: the batch is full, or already holds a request with that id.
        """
        if request.request_id in self._index:
            raise ValueError(f"request {request.request_id!r} is in the batch already")
        if len(self._index) >= self.max_num_reqs:
            raise ValueError(f"the batch is full ({self.max_num_reqs} requests)")
        row = self._builder.pop_removed()
        if row is None:
            row = len(self._index)
        if row == len(self._rows):
            self._rows.append(request)
        else:
            self._rows[row] = request
        self._index[request.request_id] = row
        self._builder.batch_changed = True
        self._builder.added.append((row, request.params, request.prompt_token_ids, request.output_token_ids))
        return row

    def remove(self, request_id: str) -> int | None:
        """Free the row of the request ``request_id`` and return it; None if the request is not in the batch.

        Raises:
            RuntimeError: an addition or :meth:`condense` in the same step has already used the free rows.
        """
        row = self._index.get(request_id)
        if row is None:
            return None
        self._builder.removed_append(row)
        del self._index[request_id]
        self._rows[row] = None
        return row

    def condense(self) -> None:
        """Close the gaps: move the highest request into the lowest empty row until no gap is below it."""
        empty = self._builder.removed
        count = len(self._index)
        last = count + len(empty) - 1
        # ``removed`` shrinks here: a destination is no longer a removed row.
        while empty and count:
            while self._rows[last] is None:
                last -= 1
            destination = self._builder.peek_removed()
            if destination is None or destination >= last:
                break
            self._builder.pop_removed()
            request = self._rows[last]
            assert request is not None
            self._rows[destination], self._rows[last] = request, None
            self._index[request.request_id] = destination
            self._builder.moved.append((last, destination, MoveDirectionality.UNIDIRECTIONAL))
        del self._rows[count:]

    def swap(self, first: int, second: int) -> None:
        """Exchange two rows, as attention backends do to order the batch.

        Args:
            first: a row.
            second: another row.

        Raises:
            IndexError: a row is empty.
        """
        rows = self.requests
        if not (0 <= first < len(rows) and 0 <= second < len(rows)):
            raise IndexError(f"rows {first} and {second} must be below {len(rows)}")
        rows[first], rows[second] = rows[second], rows[first]
        for row in (first, second):
            self._index[rows[row].request_id] = row
        self._builder.moved.append((first, second, MoveDirectionality.SWAP))

    def take_update(self) -> BatchUpdate | None:
        """Return the step's update, or None if nothing changed, and begin the next step.

        Raises:
            RuntimeError: :meth:`condense` was not called.
        """
        count = len(self.requests)
        return self._builder.get_and_reset(count)
