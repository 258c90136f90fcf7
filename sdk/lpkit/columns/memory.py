"""Memory of per-request values: written on the host, read on the device, copied once per step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch

WORD = 8
"""Bytes per word; memory is read in words."""

SMALL = 2**16
"""Largest memory in bytes that is sent whole when any of it changed."""

ROOMY, PATIENCE = 4, 64
"""Rows ``ROOMY`` times as wide as needed, for ``PATIENCE`` changes in a row, are made narrower."""


class Part(Protocol):
    """Holds values in some words of each slot's row."""

    @property
    def words(self) -> int:
        """Words needed, at least one."""

    def move(self, host: torch.Tensor) -> None:
        """Write to ``host`` from now on, int64 ``[slots + 1, words]``, and bring the held values along."""

    def find(self, device: torch.Tensor, start: int) -> None:
        """Read from ``device`` from now on, int64 ``[slots + 1, all words]``, starting at word ``start`` of each
        row."""


class HasSlots(Protocol):
    """Rows whose values can be read: :class:`lpkit.Rows`."""

    _gathered: Gathered | None

    @property
    def slots(self) -> torch.Tensor:
        """``[n]`` int64."""


class Gathered:
    """The values of some rows, of all parts of a memory, in one copy; each value read is a view of that copy.

    Attributes:
        memory: holds the values; a processor may read another memory at the same rows.
        layout: the memory's layout number; it changes when a part needs other room.
        words: ``[n, words]`` by type; empty until the first read.
        given: items already read. Each is read once, because the author may edit the result.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.layout = memory.layout
        self.words: dict[torch.dtype, torch.Tensor] = {}
        self.given: set[object] = set()


class Always:
    """Refers to a part like a weak reference, but keeps it alive. Unlike a weak reference, it can be copied with the
    part."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def __call__(self) -> Part:
        return self._part


class Memory:
    """A row of words for each slot, on the host and on the device. Its parts belong to one processor or to several.

    Args:
        slots: how many requests can hold a slot; one more slot keeps the defaults.
        device: where values are read.

    Attributes:
        changed: slots that were written since the last flush.
        layout: how often the parts have moved.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self.changed: list[int] = []
        self.layout = 0
        self._slots = slots + 1
        self._where = device
        self._one_memory = device.type == "cpu"
        self._parts: list[tuple[Callable[[], Part | None], int]] = []  # each part and its least width
        self._sizes: list[int] = []  # words of each
        self._least = 0
        self._roomy = 0

    def add(self, part: Part, *, alone: bool) -> None:
        """Make room for a part. It can be read after the next flush; other parts stay readable until then.

        Args:
            part: kept alive by its owner, unless it is alone.
            alone: True if no other part will be added.
        """
        self._parts.append((Always(part) if alone else weakref.ref(part), part.words))
        self.lay_out()

    def lay_out(self) -> None:
        """Give each part the words that it needs; held values move along."""
        self._parts = [(refer, least) for refer, least in self._parts if refer() is not None]
        parts = list(self._alive())
        self._sizes = [part.words for part in parts]
        self._words, self._least = sum(self._sizes), sum(least for _, least in self._parts)
        # On the CPU the host memory is also read: nothing is copied.
        self._host = torch.zeros(self._slots, self._words, dtype=torch.int64)
        for part, host in zip(parts, torch.split(self._host, self._sizes, 1), strict=True):
            part.move(host)
        self._moved = True
        self.layout += 1
        if self._one_memory:
            self._find()

    def gather(self, rows: HasSlots, item: object, dtype: torch.dtype) -> torch.Tensor:
        """``[n, words]``: all values of the rows, viewed as ``dtype``. Nobody else has seen this copy of ``item``."""
        held = rows._gathered
        if held is None or held.memory is not self or held.layout != self.layout or item in held.given:
            held = rows._gathered = Gathered(self)
        held.given.add(item)
        words = held.words.get(dtype)
        if words is None:
            if not held.words:
                held.words[torch.int64] = self._values.index_select(0, rows.slots)
            words = held.words[dtype] = held.words[torch.int64].view(dtype)
        return words

    def flush(self) -> None:
        """Copy the written values, if there are any."""
        if not self.changed and not self._moved:
            return
        if self._words > self._least:
            self._give_up_room()
        if not self._one_memory:
            self._send()
        self.changed.clear()
        self._moved = False

    def _find(self) -> None:
        """Tell the parts where to read."""
        self._values = self._host if self._one_memory else torch.empty_like(self._host, device=self._where)
        start = 0
        for (refer, _), size in zip(self._parts, self._sizes, strict=True):
            if (part := refer()) is not None:
                part.find(self._values, start)
            start += size

    def _alive(self) -> Iterator[Part]:
        return (part for refer, _ in self._parts if (part := refer()) is not None)

    def _give_up_room(self) -> None:
        """Narrow rows that long lists left wide, because every step reads them."""
        needed = sum(part.words for part in self._alive())
        self._roomy = self._roomy + 1 if self._words > ROOMY * needed + 1 else 0
        if self._roomy == PATIENCE:
            self._roomy = 0
            self.lay_out()

    def _send(self) -> None:
        # Pinned memory is fresh per flush: the caching host allocator keeps it until the copy is done. So a step in
        # flight never sees the next step's values.
        pin = self._where.type == "cuda"
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
        sent = packed.to(self._where, non_blocking=True)
        self._values.index_copy_(0, sent[:, 0], sent[:, 1:])
