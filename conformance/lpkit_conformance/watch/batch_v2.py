"""Which request has which slot on V2, and the last calls, as they will be written into a trace."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lpkit_conformance.watch.requests import Request


@dataclass
class Step:
    """What one step told a processor.

    Attributes:
        added: (slot, request), in order.
        calls: per ``apply``, the slots and the visible lengths of its requests; None where there were rows of drafts,
            whose number the device alone knows.
    """

    added: list[tuple[int, Request]] = field(default_factory=list)
    calls: list[tuple[Any, Any] | None] = field(default_factory=list)


class V2Batch:
    """Follows the requests. ``steps``: how many to keep.

    Attributes:
        base: the slots before the first of ``steps``.
        slots: the slots now. A request that left keeps its slot here until another one takes it: V2 does not tell.
    """

    def __init__(self, steps: int) -> None:
        self.steps: deque[Step] = deque()
        self.base: dict[int, Request] = {}
        self.slots: dict[int, Request] = {}
        self._most = steps
        self._entering: list[tuple[int, Request]] = []

    def add(self, slot: int, params: Any, filled: int) -> None:
        """A request takes ``slot`` with ``filled`` tokens: its prompt, and the outputs that it resumes with."""
        request = Request(params, max(filled, 1))
        self.slots[slot] = request
        self._entering.append((slot, request))

    def begin(self) -> None:
        """A step begins: its requests have entered."""
        self.steps.append(Step(self._entering))
        self._entering = []
        if len(self.steps) > self._most:
            self.base.update(self.steps.popleft().added)

    def apply(self, ctx: Any, rows: int) -> None:
        """Logits are processed."""
        if self.steps:
            slots = ctx.idx_mapping_np
            known = rows == len(slots)
            self.steps[-1].calls.append((slots.copy(), ctx.seq_lens_upper_bound_np[:rows].copy()) if known else None)
