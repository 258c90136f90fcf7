"""Which request sits in which row of V1's batch, and the last updates, as they will be written into a trace."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lpkit_conformance.traces.placeholders import placeholders
from lpkit_conformance.watch.requests import Request


@dataclass
class Step:
    """One ``update_state``, and the ``apply`` that followed it if ``applied``.

    Attributes:
        rows: the requests by row, after the update.
        before, after: the lengths of their outputs at the update and at the next one; None: not there yet.
        removed, added, moved: of the update; ``added`` as (row, request).
        updated: whether there was an update.
        unknown: how many of a request's last outputs were -1 at the update, where any was: asynchronous scheduling
            begins a step before it knows the tokens of the one before.
    """

    rows: tuple[Request, ...]
    before: list[int]
    updated: bool = False
    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, Request], ...] = ()
    moved: tuple[tuple[int, int, bool], ...] = ()
    applied: bool = False
    after: list[int] | None = None
    unknown: dict[Request, int] = field(default_factory=dict)


class V1Batch:
    """Follows the batch updates. ``steps``: how many to keep."""

    def __init__(self, steps: int) -> None:
        self.steps: deque[Step] = deque(maxlen=steps)
        self.rows: tuple[Request, ...] = ()

    def update(self, update: Any) -> None:
        """A step begins."""
        lengths = [len(request.outputs or ()) for request in self.rows]
        if self.steps:
            last = self.steps[-1]
            last.after = lengths
            if any(now < then for now, then in zip(lengths, last.before, strict=True)):
                self.steps.clear()  # the engine cut a list: what came before does not lead to what comes next
        if update is None:
            self.steps.append(Step(self.rows, lengths, unknown=_unknown(self.rows)))
            return
        added = tuple(
            (row, Request(params, len(prompt) if prompt is not None else 1, outputs))
            for row, params, prompt, outputs in update.added
        )
        moved = tuple((source, target, kind.name == "SWAP") for source, target, kind in update.moved)
        rows = dict(enumerate(self.rows))
        for row in update.removed:
            rows.pop(row, None)
        rows.update(added)
        for source, target, swap in moved:
            if swap:
                rows[source], rows[target] = rows[target], rows[source]
            else:
                rows[target] = rows.pop(source)
        self.rows = tuple(rows[row] for row in range(update.batch_size))
        self.steps.append(
            Step(
                self.rows,
                [len(request.outputs or ()) for request in self.rows],
                True,
                tuple(update.removed),
                added,
                moved,
                unknown=_unknown(self.rows),
            )
        )

    def apply(self) -> None:
        """Logits are processed in this step."""
        if self.steps:
            self.steps[-1].applied = True


def _unknown(rows: tuple[Request, ...]) -> dict[Request, int]:
    return {request: count for request in rows if (count := placeholders(request.outputs or ()))}
