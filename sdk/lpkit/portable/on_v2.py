"""Runs a portable processor on V2: the engine's slots are ours, rows are found anew in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lpkit.history.rows import HistoryUse, Rows
from lpkit.portable.shared import Place, Shared

if TYPE_CHECKING:
    from lpkit.portable.admission import Admission
    from lpkit.v2 import LogitsContext


class V2Binding:
    """State that V2 needs in addition to the processor's own.

    Args:
        admission: decides which requests are the processor's.
        retire: called with a slot whose request left.
        history: what the processor reads of it.
        shared: with the engine's other processors.
    """

    def __init__(
        self, admission: Admission, retire: Callable[[int], None], history: HistoryUse, shared: Shared
    ) -> None:
        self._admission = admission
        self._retire = retire
        self._declared = history
        self._shared = shared
        self._admitted = np.zeros(shared.states.max_num_reqs, dtype=np.bool_)
        self._held = 0  # slots of requests that were admitted; those of some may have left
        if history != "none":
            self._shared.will_read(self)
        self._place: Place | None = None  # of the last call

    def add(self, slot: int, sampling_params: Any) -> bool:
        """A request takes ``slot``; whether it is admitted."""
        if self._admitted[slot]:
            self._retire(slot)  # V2 does not say when a request leaves
        admitted = self._admission.asked_by(sampling_params) and self._admission.admit(slot, sampling_params, None)
        self._held += admitted - int(self._admitted[slot])
        self._admitted[slot] = admitted
        return admitted

    def rows(self, ctx: LogitsContext) -> Rows | None:
        """The call's own rows; None if there are none. Rows of unfinished prefills are left out."""
        if not self._held:  # installed, and used by nobody
            return None
        place = self._place = self._shared.place(self, self._admitted, ctx)
        if place is None:
            return None
        history = None
        if self._declared != "none":
            history = self._shared.history(place, ctx, self._declared == "tokens")
        whole = place.places.shape[1] == len(place.own)
        gathered = self._shared.gathered(place)
        return Rows(place.index, place.slots, history, self._declared, self._admission.temperature, whole, gathered)

    def entries(self, rows: Rows) -> list[tuple[int, int]]:
        """(row, slot) of the rows that :meth:`rows` found last, each row once (host work; for request-level callables).

        With drafts it waits for the device, which alone knows how many each request has.
        """
        assert self._place is not None
        if self._place.one_each:
            return list(zip(*self._place.places.tolist(), strict=True))
        return list(dict(zip(rows.index.tolist(), rows.slots.tolist(), strict=True)).items())
