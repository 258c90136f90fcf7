"""Runs a portable processor on V2: it uses the engine's slots, and finds its rows again in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lpkit.columns.transfer import sent
from lpkit.columns.widths import padded
from lpkit.history.reading import SHORTEST, History
from lpkit.history.rows import HistoryUse, Rows
from lpkit.kernels.recording import MOST_COMPARED, SlotHistories

if TYPE_CHECKING:
    from lpkit.portable.admission import Admission
    from lpkit.v2 import LogitsContext, LogitsProcRequestState

Bools = np.ndarray[Any, np.dtype[np.bool_]]


class V2Binding:
    """State that V2 needs in addition to the processor's own.

    Args:
        admission: decides which requests the processor gets.
        retire: called with a slot whose request left.
        history: part of the history that the processor reads.
        states: the engine's buffers.

    Attributes:
        held: number of slots whose last request used the processor; that request may have left.
    """

    def __init__(
        self,
        admission: Admission,
        retire: Callable[[int], None],
        history: HistoryUse,
        states: LogitsProcRequestState,
    ) -> None:
        self._admission = admission
        self._retire = retire
        self._declared = history
        self._states = states
        self._device = torch.device(states.device)
        self._longest = states.all_token_ids.gpu.shape[1]
        self._batch: tuple[bytes, int] = (b"", -1)  # the requests of the last call by slot
        self._used = self._narrow = False  # any of these uses the processor; the engine's slots are int32
        self._width = 0  # of the last call's histories
        self.held = 0
        # The requests of the last call with one row each, and the chosen requests among them; their rows and slots.
        self._located_key = b"", b""
        self._located: tuple[torch.Tensor, ...] = ()

    def add(self, slot: int, sampling_params: Any) -> bool:
        """Take a request into ``slot``; True if it is admitted."""
        before = bool(self._admission.admitted[slot])
        if before:
            self._retire(slot)  # V2 does not say when a request leaves
        admitted = self._admission.asked_by(sampling_params) and self._admission.admit(slot, sampling_params, None)
        if before and not admitted:
            self._admission.dismiss(slot)
        self.held += admitted - before
        return admitted

    def by_slot(
        self, _: object, ctx: LogitsContext, reads_texts: bool
    ) -> tuple[torch.Tensor, tuple[Any, ...] | None] | None:
        """Return the slot of each row, int64, and the histories if they are read; None if no request of the call uses
        the processor."""
        requests = ctx.idx_mapping_np
        batch = requests.tobytes(), self._admission.arena.version
        mapping = ctx.expanded_idx_mapping
        if batch != self._batch:
            self._batch, self._used = batch, bool(self._admission.admitted[requests].any())
            self._narrow = mapping.dtype != torch.int64
        if not self._used:
            return None
        if self._narrow:
            mapping = mapping.to(torch.int64)
        return mapping, self._texts(ctx) if reads_texts else None

    def _texts(self, ctx: LogitsContext, chosen: Bools | None = None) -> tuple[Any, ...]:
        """Return the fields of the :class:`SlotHistories` of a call, as wide as the ``chosen`` requests need. None: as
        all requests need, if that is not wide."""
        requests, states = ctx.idx_mapping_np, self._states
        bounds, longest = ctx.seq_lens_upper_bound_np, self._longest
        if chosen is None:
            most = max(bounds.tolist()[: len(requests)])  # numpy's takes longer for few
            if not self._width < 2 * most <= 2 * self._width:
                self._width = padded(most, SHORTEST)
            width = outputs = self._width
            if width > MOST_COMPARED:
                chosen = self._admission.admitted[requests]
        if chosen is not None:
            lengths = bounds[: len(requests)][chosen]
            width = padded(int(lengths.max()), SHORTEST)
            outputs = int((lengths - states.prompt_len.np[requests[chosen]]).max())
        if width > longest:
            width = longest
        held, prompts, last = states.all_token_ids.gpu, states.prompt_len.gpu, ctx.pos
        if last.numel() == len(requests):  # len() of a tensor takes Python
            return held, prompts, last, last, last, width, outputs, 0
        return held, prompts, last, ctx.input_ids, states.total_len.gpu, width, outputs, 1

    def rows(self, _: object, ctx: LogitsContext) -> Rows | None:
        """Return the call's rows that use the processor, except unfinished prefills; None without rows."""
        requests = ctx.idx_mapping_np
        lengths = ctx.seq_lens_upper_bound_np[: len(requests)]
        chosen = self._admission.admitted[requests] & (lengths >= self._states.prefill_len.np[requests])
        count = np.count_nonzero(chosen)
        if not count:
            return None
        (index, slots), history = self._find(requests, chosen, ctx.expanded_idx_mapping), None
        if self._declared != "none":
            history = History(SlotHistories(*self._texts(ctx, chosen)), index, slots, self._declared == "tokens")
        return Rows(index, slots, history, self._declared, self._admission.temperature, count == len(chosen))

    def _find(self, requests: np.ndarray[Any, Any], chosen: Bools, mapping: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return rows and slots of the chosen requests; with drafts, the device computes them."""
        if mapping.shape[0] != len(requests):
            index = self._with_drafts(requests, chosen, mapping)
            return index, mapping[index].to(torch.int64)
        key = requests.tobytes(), chosen.tobytes()
        if key != self._located_key:
            self._located_key = key
            numbers = np.flatnonzero(chosen)
            located = np.stack((numbers, requests[numbers].astype(np.int64)))
            self._located = sent(torch.from_numpy(located), self._device).unbind()
        return self._located

    def _with_drafts(self, requests: np.ndarray[Any, Any], chosen: Bools, mapping: torch.Tensor) -> torch.Tensor:
        """Compute the rows of the chosen requests if a request has several rows. Only the device knows their number.

        The host knows an upper bound, because every other request has at least one row. Unused entries repeat the first
        chosen row.
        """
        if chosen.all():
            return torch.arange(mapping.shape[0], device=mapping.device)
        mine = np.zeros(self._states.max_num_reqs, dtype=np.bool_)
        mine[requests[chosen]] = True
        is_own = sent(torch.from_numpy(mine), mapping.device)[mapping]
        bound = mapping.shape[0] - int((~chosen).sum())
        order = torch.argsort(is_own, descending=True, stable=True)[:bound]
        return torch.where(is_own[order], order, order[:1])
