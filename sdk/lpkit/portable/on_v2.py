"""Runs a portable processor on V2: it uses the engine's slots, and finds its rows again in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lpkit.history.rows import HistoryUse, Rows
from lpkit.portable.shared import LocatedRows, Shared

if TYPE_CHECKING:
    from lpkit.portable.admission import Admission
    from lpkit.v2 import LogitsContext


class V2Binding:
    """State that V2 needs in addition to the processor's own.

    Args:
        admission: decides which requests the processor gets.
        retire: called with a slot whose request left.
        history: part of the history that the processor reads.
        shared: data shared with the engine's other processors.
    """

    def __init__(
        self, admission: Admission, retire: Callable[[int], None], history: HistoryUse, shared: Shared
    ) -> None:
        self._admission = admission
        self._retire = retire
        self._declared = history
        self._shared = shared
        self._admitted = np.zeros(shared.states.max_num_reqs, dtype=np.bool_)
        self._held = 0  # slots of admitted requests, some of which may have left
        if history != "none":
            self._shared.will_read(self)
        self._located: LocatedRows | None = None  # of the last call

    def add(self, slot: int, sampling_params: Any) -> bool:
        """Take a request into ``slot``; True if it is admitted."""
        if self._admitted[slot]:
            self._retire(slot)  # V2 does not say when a request leaves
        admitted = self._admission.asked_by(sampling_params) and self._admission.admit(slot, sampling_params, None)
        self._held += admitted - int(self._admitted[slot])
        self._admitted[slot] = admitted
        return admitted

    def rows(self, ctx: LogitsContext) -> Rows | None:
        """Return the call's rows that use the processor, except unfinished prefills; None without rows."""
        if not self._held:  # no request uses the processor
            return None
        located = self._located = self._shared.locate(self, self._admitted, ctx)
        if located is None:
            return None
        history = None
        if self._declared != "none":
            history = self._shared.history(located, ctx, self._declared == "tokens")
        whole = located.numbers_and_slots.shape[1] == len(located.chosen)
        gathered = self._shared.gathered(located)
        return Rows(located.index, located.slots, history, self._declared, self._admission.temperature, whole, gathered)

    def entries(self, rows: Rows) -> list[tuple[int, int]]:
        """Return (row, slot) for the rows of the last :meth:`rows`, each row once. Used by request-level callables.

        With drafts it waits for the device, because only the device knows each request's number of drafts.
        """
        assert self._located is not None
        if self._located.one_each:
            return list(zip(*self._located.numbers_and_slots.tolist(), strict=True))
        return list(dict(zip(rows.index.tolist(), rows.slots.tolist(), strict=True)).items())
