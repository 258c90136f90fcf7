"""Memory of per-request values: written on the host, read on the device, one copy per step in between."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch

WORD = 8
"""Bytes of the words that memory is read in."""

SMALL = 2**16
"""Bytes of a memory that is sent as a whole, where any of it changed."""

ROOMY, PATIENCE = 4, 64
"""Rows this many times as wide as needed, at this many changes in a row, are made narrower."""


class Part(Protocol):
    """What holds values in some words of each slot's row."""

    @property
    def words(self) -> int:
        """How many it needs, at least one."""

    def move(self, host: torch.Tensor) -> None:
        """Write from now on here, int64 ``[slots + 1, words]``, and take along what is held."""

    def find(self, device: torch.Tensor, start: int) -> None:
        """Read from now on from this word of each row, int64 ``[slots + 1, all words]``."""


class HasSlots(Protocol):
    """What values are read for: :class:`lpkit.Rows`."""

    _gathered: Gathered | None

    @property
    def slots(self) -> torch.Tensor:
        """``[n]`` int64."""


class Gathered:
    """The values of some rows, of all parts of a memory, in one copy that what is read are views of.

    Attributes:
        memory: whose they are; a processor may read those of another memory at the same rows.
        layout: of the memory, which parts move in when one needs other room.
        words: ``[n, words]`` by type; empty until the first read.
        given: what was read from it. Each is read once: an author may edit what he was given.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.layout = memory.layout
        self.words: dict[torch.dtype, torch.Tensor] = {}
        self.given: set[object] = set()


class Always:
    """Refers to a part as a weak reference does, and keeps it; unlike that it can be copied with what it refers to."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def __call__(self) -> Part:
        return self._part


class Memory:
    """A row of words for each slot, on the host and on the device. Its parts are those of one processor or of several.

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
        self._parts: list[tuple[Callable[[], Part | None], int]] = []  # and what each needs at least
        self._sizes: list[int] = []  # words of each
        self._least = 0
        self._roomy = 0

    def add(self, part: Part, *, alone: bool) -> None:
        """Make room for a part, which can be read after the next flush; others can be read as they are until then.

        Args:
            part: kept only by others, unless it is alone.
            alone: whether it stays the only one.
        """
        self._parts.append((Always(part) if alone else weakref.ref(part), part.words))
        self.lay_out()

    def lay_out(self) -> None:
        """Give each part the words that it needs; what is held moves along."""
        self._parts = [(found, least) for found, least in self._parts if found() is not None]
        parts = list(self._alive())
        self._sizes = [part.words for part in parts]
        self._words, self._least = sum(self._sizes), sum(least for _, least in self._parts)
        # On the CPU this is also what is read: there is nothing to copy.
        self._host = torch.zeros(self._slots, self._words, dtype=torch.int64)
        for part, host in zip(parts, torch.split(self._host, self._sizes, 1), strict=True):
            part.move(host)
        self._moved = True
        self.layout += 1
        if self._one_memory:
            self._find()

    def gather(self, rows: HasSlots, item: object, dtype: torch.dtype) -> torch.Tensor:
        """``[n, words]``: all values of the rows, by a type; of this item nobody has seen them."""
        held = rows._gathered
        if held is None or held.memory is not self or held.layout != self.layout or item in held.given:
            held = rows._gathered = Gathered(self)
        held.given.add(item)
        found = held.words.get(dtype)
        if found is None:
            if not held.words:
                held.words[torch.int64] = self._values.index_select(0, rows.slots)
            found = held.words[dtype] = held.words[torch.int64].view(dtype)
        return found

    def flush(self) -> None:
        """Copy what was written, if anything was."""
        if not self.changed and not self._moved:
            return
        if self._words > self._least:
            self._give_up_room()
        if not self._one_memory:
            self._send()
        self.changed.clear()
        self._moved = False

    def _find(self) -> None:
        """Have the parts read where they were laid out."""
        self._values = self._host if self._one_memory else torch.empty_like(self._host, device=self._where)
        start = 0
        for (found, _), size in zip(self._parts, self._sizes, strict=True):
            if (part := found()) is not None:
                part.find(self._values, start)
            start += size

    def _alive(self) -> Iterator[Part]:
        return (part for found, _ in self._parts if (part := found()) is not None)

    def _give_up_room(self) -> None:
        """Long lists that left leave wide rows, which every step reads: not for ever."""
        needed = sum(part.words for part in self._alive())
        self._roomy = self._roomy + 1 if self._words > ROOMY * needed + 1 else 0
        if self._roomy == PATIENCE:
            self._roomy = 0
            self.lay_out()

    def _send(self) -> None:
        # Fresh pinned memory per flush: the caching host allocator keeps it until the copy is done, so a step
        # still in flight never sees the next one's values.
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
        # The slot and the words of its row lie together: one copy to the device.
        slots = np.flatnonzero(marked)
        packed = torch.empty(len(slots), 1 + self._words, dtype=torch.int64, pin_memory=pin)
        packed[:, 0] = torch.from_numpy(slots)
        packed[:, 1:] = self._host[packed[:, 0]]
        sent = packed.to(self._where, non_blocking=True)
        self._values.index_copy_(0, sent[:, 0], sent[:, 1:])
