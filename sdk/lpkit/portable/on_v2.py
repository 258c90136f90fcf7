"""Runs a portable processor on V2: the engine's slots are ours, rows are found anew in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lpkit.columns.transfer import sent
from lpkit.history.rows import HistoryUse, Rows
from lpkit.history.v2 import V2History

if TYPE_CHECKING:
    from lpkit.portable.admission import Admission
    from lpkit.v2 import LogitsContext, LogitsProcRequestState


class V2Binding:
    """State that V2 needs in addition to the processor's own.

    Args:
        admission: decides which requests are the processor's.
        retire: called with a slot whose request left.
        history: what the processor reads of it.
        states: the engine's per-slot buffers.
    """

    def __init__(
        self, admission: Admission, retire: Callable[[int], None], history: HistoryUse, states: LogitsProcRequestState
    ) -> None:
        self._admission = admission
        self._retire = retire
        self._declared = history
        self._states = states
        self._admitted = np.zeros(states.max_num_reqs, dtype=np.bool_)
        self._held = 0  # slots of requests that were admitted; those of some may have left
        # Of the last step: which requests were where, how many of these are own, and what that comes to.
        self._told: tuple[bool, bytes, bytes] | None = None
        self._own = 0
        self._one_each = True
        self._entries: np.ndarray[Any, Any] = np.empty((2, 0), dtype=np.int64)
        self._on_device: tuple[torch.Tensor, ...] = ()

    def add(self, slot: int, sampling_params: Any) -> bool:
        """A request takes ``slot``; whether it is admitted."""
        if self._admitted[slot]:
            self._retire(slot)  # V2 does not say when a request leaves
        admitted = self._admission.asked_by(sampling_params) and self._admission.admit(slot, sampling_params, None)
        self._held += admitted - int(self._admitted[slot])
        self._admitted[slot] = admitted
        return admitted

    def rows(self, logits: torch.Tensor, ctx: LogitsContext) -> Rows | None:
        """The call's own rows; None if there are none. Rows of unfinished prefills are left out."""
        if not self._held:  # installed, and used by nobody
            return None
        reqs = ctx.idx_mapping_np
        lengths = ctx.seq_lens_upper_bound_np[: len(reqs)]
        own = self._admitted[reqs] & (lengths >= self._states.prefill_len.np[reqs])
        self._one_each = logits.shape[0] == len(reqs)
        told = (self._one_each, own.tobytes(), reqs.tobytes())
        if told != self._told:
            self._told = told
            self._place(own, reqs, logits.device)
        if not self._own:
            return None
        whole = self._own == len(reqs)
        if self._one_each:
            index, slots = self._on_device
        else:
            index = self._with_drafts(own, ctx, logits.device)
            slots = ctx.expanded_idx_mapping[index].to(torch.int64)
        history = None
        if self._declared != "none":
            width = int((lengths if whole else lengths[own]).max())
            history = V2History(self._states, ctx, index, slots, width, self._declared == "tokens")
        return Rows(index, slots, history, self._declared, self._admission.temperature, whole)

    def entries(self, rows: Rows) -> list[tuple[int, int]]:
        """(row, slot) of the rows that :meth:`rows` found last, each row once (host work; for request-level callables).

        With drafts it waits for the device, which alone knows how many each request has.
        """
        if self._one_each:
            return list(zip(*self._entries.tolist(), strict=True))
        return list(dict(zip(rows.index.tolist(), rows.slots.tolist(), strict=True)).items())

    def _place(self, own: np.ndarray[Any, Any], reqs: np.ndarray[Any, Any], device: torch.device) -> None:
        """Count own requests, and send their rows and slots; with drafts these are found on the device."""
        places = np.flatnonzero(own)
        self._own = len(places)
        if not self._own or not self._one_each:
            return
        self._entries = np.empty((2, self._own), dtype=np.int64)
        self._entries[0], self._entries[1] = places, reqs[places]
        self._on_device = sent(torch.from_numpy(self._entries), device).unbind()

    def _with_drafts(self, own: np.ndarray[Any, Any], ctx: LogitsContext, device: torch.device) -> torch.Tensor:
        """Rows of own requests when a request has several: their number is known to the device alone.

        An upper bound of it is known to the host: every request that is not ours has at least one row. The
        entries left over repeat our first row.
        """
        total = ctx.expanded_idx_mapping.shape[0]
        if own.all():
            return torch.arange(total, device=device)
        mine = np.zeros(self._admitted.shape[0], dtype=np.bool_)
        mine[ctx.idx_mapping_np[own]] = True
        is_own = sent(torch.from_numpy(mine), device)[ctx.expanded_idx_mapping]
        bound = total - int((~own).sum())
        order = torch.argsort(is_own, descending=True, stable=True)[:bound]
        return torch.where(is_own[order], order, order[:1])
