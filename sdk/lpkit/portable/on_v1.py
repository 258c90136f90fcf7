"""Runs a portable processor on V1: rows follow the batch updates, state stays with its slot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from lpkit.columns.transfer import delivered, sent
from lpkit.history.reading import History
from lpkit.history.rows import HistoryUse, Rows
from lpkit.history.staged import AdmittedRequest, V1History
from lpkit.kernels.recording import SlotHistories
from lpkit.portable.row_slots import Ledger

if TYPE_CHECKING:
    from lpkit.portable.admission import Admission
    from lpkit.v1 import BatchUpdate

logger = logging.getLogger("lpkit")


class V1Binding:
    """State that V1 needs in addition to the processor's own.

    Args:
        admission: decides which requests the processor gets.
        retire: called with a slot whose request left.
        history: part of the history that the processor reads.
        slots: the engine's ``max_num_seqs``.
        device: of the engine.

    Attributes:
        held: number of requests that use the processor; while it is 0, neither rows nor slots may be asked for.
    """

    def __init__(
        self,
        admission: Admission,
        retire: Callable[[int], None],
        history: HistoryUse,
        slots: int,
        device: torch.device,
    ) -> None:
        self._admission = admission
        self._retire = retire
        self._declared = history
        self._device = device
        self.held = 0
        self._ledger = Ledger(slots, self._release, admission.required_keys)
        self._history = None
        if history != "none":
            self._history = V1History(slots, device, history == "tokens")
        self._nobody = slots
        self._by_row = np.full(slots, slots, dtype=np.int64)  # the slot of each row
        self._sent: torch.Tensor | None = None  # the same on the device; it stays there
        self._stale = True
        # Made when first read after a change: admitted requests in row order; their rows and slots on the device.
        self._admitted: list[tuple[int, AdmittedRequest]] | None = None
        self._located: tuple[torch.Tensor, ...] | None = None
        self._warned = False

    def _release(self, slot: int) -> None:
        if self._history is not None:
            self._history.leave(slot)
        self._retire(slot)

    def update(self, update: BatchUpdate) -> None:
        """Follow the batch, and send column values of new requests."""
        changed = self._ledger.update(update, self._admission.admit)
        self.held = self._ledger.held
        if not changed:
            return
        self._admitted = self._located = None
        if self._history is not None:
            self._history.changed |= changed
        for row in changed:
            entry = self._ledger.entries[row]
            self._by_row[row] = self._nobody if entry is None else entry.slot
        self._stale = True
        self._admission.flush()

    def by_slot(self, logits: torch.Tensor, _: object, reads_texts: bool) -> tuple[torch.Tensor, SlotHistories | None]:
        """Return the slot of each row, int64 ``[rows]`` or longer, and the histories if they are read. Rows of requests
        that do not use the processor have the slot that no request gets."""
        if reads_texts:
            return self._texts(logits)[:2]
        if self._stale or self._sent is None:
            self._stale = False
            self._sent = delivered(torch.from_numpy(self._by_row), self._sent, self._device)
        return self._sent, None

    def rows(self, logits: torch.Tensor, _: object = None) -> Rows | None:
        """Return this step's rows that use the processor; None without rows."""
        admitted = self._in_order()
        if self._located is None:
            located = [[row for row, _ in admitted], [entry.slot for _, entry in admitted]]
            self._located = sent(torch.from_numpy(np.array(located, dtype=np.int64)), self._device).unbind()
        (index, slots), history = self._located, None
        if self._history is not None:
            places, texts, waiting = self._texts(logits)
            if waiting:
                keep = [number for number, (row, _) in enumerate(admitted) if row not in waiting]
                if not keep:
                    return None
                numbers = sent(torch.tensor(keep), self._device)
                index, slots = index[numbers], slots[numbers]
            if texts.kind:
                texts.held[places, texts.last] = texts.drafts  # rows of other requests have the slot of nobody
            history = History(texts._replace(kind=0), index, slots, self._declared == "tokens")
        whole = slots.shape[0] == logits.shape[0]  # both are in row order, so equal counts mean equal rows
        return Rows(index, slots, history, self._declared, self._admission.temperature, whole)

    def entries(self, rows: Rows) -> list[tuple[int, AdmittedRequest]]:
        """Return (row, admitted request) for ``rows``, in the same order. Host work, for request-level callables."""
        if self._located is not None and rows.index is self._located[0]:
            return self._in_order()
        chosen = set(rows.index.tolist())
        return [item for item in self._in_order() if item[0] in chosen]

    def _in_order(self) -> list[tuple[int, AdmittedRequest]]:
        if self._admitted is None:
            entries = self._ledger.entries
            self._admitted = [(row, entry) for row, entry in enumerate(entries) if entry is not None]
        return self._admitted

    def _texts(self, logits: torch.Tensor) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        """Return what :meth:`V1History.texts` does; warn once if rows wait for tokens."""
        assert self._history is not None
        texts = self._history.texts(self._ledger.entries, logits.shape[0])
        if texts[2] and not self._warned:
            self._warned = True
            logger.warning(
                "%s reads token ids, but vLLM's async scheduling left placeholders (-1) in the output list; these "
                "rows are left unchanged. Pass the plugin explicitly (--logits-processors), or start vLLM "
                "with --no-async-scheduling.",
                self._admission.owner,
            )
        return texts
