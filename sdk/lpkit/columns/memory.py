"""Memory of a processor's columns: written on the host, read on the device, copied once per step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lpkit.columns.column import NUMPY_TYPES, Column, Declaration, HasSlots

WORD = 8
"""Bytes per word; memory is read in words."""

SMALL = 2**16
"""Largest memory in bytes that is sent whole when any of it changed."""

ROOMY, PATIENCE = 4, 64
"""Rows ``ROOMY`` times as wide as needed, for ``PATIENCE`` changes in a row, are made narrower."""


class Gathered:
    """The values of some rows, of all columns of an arena, in one copy; each column read is a view of that copy.

    Attributes:
        source: the memory that was read, by type.
        words: ``[n, ...]`` by type, first by that of the first read.
        given: columns already read. Each is read once, because the author may edit the result.
    """

    def __init__(self, source: Mapping[torch.dtype, torch.Tensor], slots: torch.Tensor, dtype: torch.dtype) -> None:
        if dtype.itemsize == 1:  # a copy of bools may not keep the bytes of numbers
            dtype = torch.int64
        self.source = source
        self.words: dict[torch.dtype, torch.Tensor] = {dtype: source[dtype].index_select(0, slots)}
        self.given: set[object] = set()


class Arena:
    """All columns of one processor: a row of words for each slot, on the host and on the device.

    Args:
        declared: columns by name.
        slots: how many requests can hold a slot; one more slot keeps the defaults.
        device: where processors read the columns.
        vocab_size: of the engine, for columns that hold sets of tokens.

    Attributes:
        columns: by name.
        changed: slots written since the last flush.
        dirty: True if something outside of the slots' rows was written since then.
        version: number of flushes that sent anything.
        layout: another number whenever columns lie elsewhere on the device, or have another shape.
    """

    def __init__(
        self, declared: Mapping[str, Declaration[Any]], slots: int, device: torch.device, vocab_size: int = 0
    ) -> None:
        self.device, self.vocab_size = device, vocab_size
        self.changed: list[int] = []
        self.dirty = True
        self.version = self.layout = 0
        self._slots = slots + 1
        self._on_host = device.type == "cpu"
        self.columns = {name: item.bind(slots, self) for name, item in declared.items()}
        # This order keeps every view aligned without padding.
        self._widest_first = sorted(self.columns.values(), key=lambda item: -item._dtype.itemsize)
        self._forgetful = [item for item in self._widest_first if item.forgets]
        self._flushed = [item for item in self._widest_first if type(item).flush is not Column.flush]
        self._roomy = 0
        self.lay_out()
        self._least = self._words

    @property
    def _needed(self) -> int:
        return max(1, -(-sum(item._needed * item._dtype.itemsize for item in self._widest_first) // WORD))

    def lay_out(self) -> None:
        """Give each column the room that it needs; held values move along. The device follows at the next flush."""
        self._words = self._needed
        # On the CPU the host memory is also read: nothing is copied.
        self._host = torch.zeros(self._slots, self._words, dtype=torch.int64)
        raw = self._host.numpy().view(np.uint8)
        self._starts, start = [], 0
        for item in self._widest_first:
            stop = start + item._needed * item._dtype.itemsize
            item._place(raw[:, start:stop].view(NUMPY_TYPES[item._dtype]))
            self._starts.append(start)
            start = stop
        # A slot's row as one element, so that one assignment resets all of its columns.
        self._rows = raw.view(np.dtype((np.void, raw.shape[1])))[:, 0]
        self._default_row = self._rows[-1]
        self._moved = True
        if self._on_host:
            self._find()

    def _find(self) -> None:
        """Make the columns read the memory's new layout."""
        self.layout += 1
        self._values = self._host if self._on_host else torch.empty_like(self._host, device=self.device)
        types = {torch.int64, *(item._dtype for item in self._widest_first)}
        self._typed = {dtype: self._values.view(dtype) for dtype in types}
        for item, start in zip(self._widest_first, self._starts, strict=True):
            item._find(self._typed[item._dtype], start // item._dtype.itemsize)

    def reset(self, slot: int) -> None:
        """Restore all defaults, so that the slot's next request sees nothing of its predecessor."""
        for item in self._forgetful:
            item._forget(slot)
        self._rows[slot] = self._default_row
        self.changed.append(slot)

    def gather(self, rows: HasSlots, item: object, dtype: torch.dtype) -> torch.Tensor:
        """``[n, ...]``: all values of the rows, viewed as ``dtype``. Nobody else has seen this copy of ``item``."""
        held: Gathered | None = rows._gathered
        if held is None or held.source is not self._typed or item in held.given:
            held = rows._gathered = Gathered(self._typed, rows.slots, dtype)
        held.given.add(item)
        words = held.words.get(dtype)
        if words is None:
            words = held.words[dtype] = next(iter(held.words.values())).view(dtype)
        return words

    def flush(self) -> None:
        """Copy staged values, if there are any."""
        if not (self.dirty or self.changed or self._moved):
            return
        self.version += 1
        if self.dirty:
            self.dirty = False
            for item in self._flushed:
                item.flush()
        if not self.changed and not self._moved:
            return
        if self._words > self._least:
            self._give_up_room()
        if not self._on_host:
            self._send()
        self.changed.clear()
        self._moved = False

    def _give_up_room(self) -> None:
        """Narrow rows that long lists left wide, because every step reads them."""
        self._roomy = self._roomy + 1 if self._words > ROOMY * self._needed + 1 else 0
        if self._roomy == PATIENCE:
            self._roomy = 0
            self.lay_out()

    def _send(self) -> None:
        # Pinned memory is fresh per flush: the caching host allocator keeps it until the copy is done. So a step in
        # flight never sees the next step's values.
        pin = self.device.type == "cuda"
        if self._moved or self._host.nbytes <= SMALL:
            if self._moved:
                self._find()
            block = torch.empty_like(self._host, pin_memory=pin)
            block.copy_(self._host)
            self._values.copy_(block, non_blocking=True)
            return
        marked = np.zeros(self._slots, dtype=np.bool_)
        for slot in self.changed:
            marked[slot] = True
        # Each slot number and the words of its row lie together, so that one copy suffices.
        slots = np.flatnonzero(marked)
        packed = torch.empty(len(slots), 1 + self._words, dtype=torch.int64, pin_memory=pin)
        packed[:, 0] = torch.from_numpy(slots)
        packed[:, 1:] = self._host[packed[:, 0]]
        sent = packed.to(self.device, non_blocking=True)
        self._values.index_copy_(0, sent[:, 0], sent[:, 1:])
