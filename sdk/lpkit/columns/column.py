"""Per-request values on the device: written on the host one request at a time, copied once per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
import torch

NUMPY_TYPES = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float32: np.float32,
    torch.float64: np.float64,
}

Scalar = float | int | bool

WORD = 8
"""Bytes of the words that an arena is read in."""

SMALL = 2**16
"""Bytes of an arena that is sent as a whole, where any of it changed."""

ROOMY, PATIENCE = 4, 64
"""Rows this many times as wide as needed, at this many changes in a row, are made narrower."""


class HasSlots(Protocol):
    """What a column is read for: :class:`lpkit.Rows`."""

    _gathered: Gathered | None

    @property
    def slots(self) -> torch.Tensor:
        """``[n]`` int64."""


class Column:
    """One value (or ``width`` values) per request slot.

    ``column[request.slot] = value`` stages a write on the host; ``column[rows]`` is the device tensor ``[n]``
    (``[n, width]``) of the rows at hand. The first read in a step fetches all columns of the processor, so what is
    read is strided (``reshape`` flattens it, ``view`` may not); it is the reader's own, to be edited in place or not.

    Args:
        declared: its type, its default and its width.
        arena: whose memory it lives in.
    """

    def __init__(self, declared: Declaration[Any], arena: Arena) -> None:
        self._dtype = declared.dtype
        self._room = declared.width or 1
        self._default = declared.default
        self._scalar = declared.width is None
        self._arena = arena
        self._changed = arena.changed
        self._host: np.ndarray[Any, Any]
        self._device: torch.Tensor
        self._start = 0

    def __setitem__(self, slot: int, value: Scalar | Sequence[Scalar]) -> None:
        """Stage a request's value on the host; all that was staged is copied once per step.

        Args:
            slot: ``request.slot``.
            value: a number, or ``width`` of them.
        """
        self._host[slot] = value
        self._changed.append(slot)

    def reset(self, slot: int) -> None:
        """Put the default back, so that a slot's next occupant finds nothing of the last one's; the SDK does it.

        Args:
            slot: the slot of a request that left.
        """
        self._forget(slot)
        self._host[slot] = self._default
        self._changed.append(slot)

    def _forget(self, slot: int) -> None:
        """Drop what is kept of a request outside of its row in the arena."""

    @property
    def used(self) -> bool:
        """Whether any request has another value than the default; the host knows, so what nobody asked for can be left
        out."""
        return bool((self._host != self._default).any())

    @property
    def all(self) -> torch.Tensor:
        """``[slots + 1]`` (``[slots + 1, width]``) on the device; the last slot is never given out."""
        return self._device

    def __getitem__(self, rows: HasSlots) -> torch.Tensor:
        """The values of the rows at hand.

        Args:
            rows: what ``process`` or ``edit`` was given.

        Returns:
            ``[n]`` or ``[n, width]``, on the device.
        """
        return self._part(self._arena.gather(rows, self), self._start)

    def flush(self) -> None:
        """Send what was staged; the arena does it for columns that live in it."""

    @property
    def _needed(self) -> int:
        """Values per slot that there must be room for."""
        return self._room

    def _place(self, values: np.ndarray[Any, Any]) -> None:
        """Move into new memory on the host: ``[slots + 1, room]``."""
        values[...] = self._default
        if hasattr(self, "_host"):
            old = self._host.reshape(len(values), -1)
            kept = min(old.shape[1], values.shape[1])
            values[:, :kept] = old[:, :kept]
        self._room = values.shape[1]
        self._host = values[:, 0] if self._scalar else values

    def _find(self, memory: torch.Tensor, start: int) -> None:
        """Be read from new memory on the device, viewed as this column's type, from a position of each row on."""
        self._start = start
        self._device = self._part(memory, start, self._room)

    def _part(self, memory: torch.Tensor, start: int, width: int | None = None) -> torch.Tensor:
        if self._scalar:
            return memory.select(1, start)
        return memory.narrow(1, start, width or self._room)


class Gathered:
    """All columns of a processor at some rows, in one copy that their values are views of.

    Attributes:
        arena: whose columns they are; another processor may read its own columns at the same rows.
        words: int64 ``[n, words]``, and the same memory by other types.
        given: columns that were read from it. Each is read once: an author may edit what he was given.
    """

    def __init__(self, arena: Arena, words: torch.Tensor) -> None:
        self.arena = arena
        self.words = {torch.int64: words}
        self.given: set[Column] = set()


ColumnT = TypeVar("ColumnT", bound=Column, covariant=True)
DeclarationT = TypeVar("DeclarationT", bound="Declaration[Any]")


class Declaration(Generic[ColumnT]):
    """Stands in a processor's class body for a column, which each instance has of its own.

    Args:
        dtype: bool, uint8, int32, int64, float32 or float64.
        default: value of slots to which nothing was written.
    """

    width: int | None = None

    def __init__(self, dtype: torch.dtype, default: Scalar) -> None:
        if dtype not in NUMPY_TYPES:
            raise TypeError(f"a column holds one of {', '.join(map(str, NUMPY_TYPES))}, not {dtype}")
        self.dtype, self.default = dtype, default

    @overload
    def __get__(self: DeclarationT, instance: None, owner: type) -> DeclarationT: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> ColumnT: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        # Instances have their columns among their attributes: reading one takes no call.
        if instance is None:
            return self
        raise AttributeError("columns are there once the base's __init__ has run")

    def separate(self, slots: int, vocab_size: int, device: torch.device, arena: Arena) -> Column | None:
        """The column, if it has its own memory; None if it is part of the arena."""
        return None

    def shared(self, slots: int, arena: Arena) -> Column:
        """The column, as a part of the arena."""
        return Column(self, arena)


class column(Declaration[Column]):  # noqa: N801 - used as a declaration, like dataclasses.field
    """Declares a :class:`Column` in a processor's class body.

    Args:
        dtype: bool, uint8, int32, int64, float32 or float64.
        default: value of slots to which nothing was written.
        width: None for one value per request, else how many.
    """

    def __init__(self, dtype: torch.dtype, *, default: Scalar = 0, width: int | None = None) -> None:
        super().__init__(dtype, default)
        if width is not None and width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        self.width = width


class Arena:
    """Host and device memory of all columns of one processor: a row for each slot, with the values of all columns.

    One copy per step sends what changed, and one gather reads the rows of a step.

    Args:
        declared: columns by name.
        slots: how many requests can hold a slot; one more slot keeps the defaults.
        device: where the columns are read.
        vocab_size: of the engine, for columns that hold sets of tokens.

    Attributes:
        columns: by name.
        changed: slots that were written since the last flush.
        dirty: whether a column with its own memory was written since then.
    """

    def __init__(
        self, declared: Mapping[str, Declaration[Any]], slots: int, device: torch.device, vocab_size: int = 0
    ) -> None:
        self.changed: list[int] = []
        self.dirty = True
        self._device_type = device
        self._one_memory = device.type == "cpu"
        self._slots = slots + 1
        separate = {name: item.separate(slots, vocab_size, device, self) for name, item in declared.items()}
        self._separate = {name: bound for name, bound in separate.items() if bound is not None}
        shared = {name: item.shared(slots, self) for name, item in declared.items() if name not in self._separate}
        self.columns: dict[str, Column] = {**self._separate, **shared}
        # Widest items first keeps every view aligned without padding.
        self._shared = sorted(shared.values(), key=lambda item: -item._dtype.itemsize)
        self._forgetful = [item for item in self.columns.values() if type(item)._forget is not Column._forget]
        self._roomy = 0
        self.lay_out()
        self._least = self._words
        self._find()

    def lay_out(self) -> None:
        """Give each column the room that it needs; what is held moves along."""
        starts, size = [], 0
        for item in self._shared:
            starts.append(size)
            size += item._needed * item._dtype.itemsize
        # On the CPU this is also what `column[rows]` reads: there is nothing to copy.
        self._words = max(1, -(-size // WORD))
        self._host = torch.zeros(self._slots, self._words, dtype=torch.int64)
        raw = self._host.numpy().view(np.uint8)
        for item, start in zip(self._shared, starts, strict=True):
            stop = start + item._needed * item._dtype.itemsize
            item._place(raw[:, start:stop].view(NUMPY_TYPES[item._dtype]))
        self._starts = starts
        # A slot's row as one element: all of its columns are reset in one assignment.
        self._rows = raw.view(np.dtype((np.void, self._words * WORD)))[:, 0]
        self._default_row = self._rows[-1]
        self._moved = True
        if self._one_memory:
            self._find()

    def _find(self) -> None:
        """Read from now on where the columns were laid out."""
        if self._one_memory:
            self._on_device = self._host
        else:
            self._on_device = torch.empty_like(self._host, device=self._device_type)
        for item, start in zip(self._shared, self._starts, strict=True):
            item._find(self._on_device.view(item._dtype), start // item._dtype.itemsize)

    def reset(self, slot: int) -> None:
        """Put all defaults back, so that a slot's next occupant finds nothing of the last one's."""
        for item in self._forgetful:
            item._forget(slot)
        self._rows[slot] = self._default_row
        self.changed.append(slot)

    def gather(self, rows: HasSlots, item: Column) -> torch.Tensor:
        """The values of all columns at the rows, viewed as a column's type; of this column nobody has seen them."""
        held = rows._gathered
        if held is None or held.arena is not self or item in held.given:
            held = rows._gathered = Gathered(self, self._on_device.index_select(0, rows.slots))
        held.given.add(item)
        found = held.words.get(item._dtype)
        if found is None:
            found = held.words[item._dtype] = held.words[torch.int64].view(item._dtype)
        return found

    def flush(self) -> None:
        """Copy what was staged, if anything was."""
        if self.dirty:
            self.dirty = False
            for item in self._separate.values():
                item.flush()
        if not self.changed and not self._moved:
            return
        if self._words > self._least:
            self._give_up_room()
        if not self._one_memory:
            self._send()
        self.changed.clear()
        self._moved = False

    def _give_up_room(self) -> None:
        """Long lists that left leave wide rows, which every step reads: not for ever."""
        needed = sum(item._needed * item._dtype.itemsize for item in self._shared)
        self._roomy = self._roomy + 1 if self._words * WORD > ROOMY * needed + WORD else 0
        if self._roomy == PATIENCE:
            self._roomy = 0
            self.lay_out()

    def _send(self) -> None:
        # Fresh pinned memory per flush: the caching host allocator keeps it until the copy is done, so a step
        # still in flight never sees the next one's values.
        pin = self._device_type.type == "cuda"
        if self._moved or self._host.nbytes <= SMALL:
            if self._moved:
                self._find()
            block = torch.empty_like(self._host, pin_memory=pin)
            block.copy_(self._host)
            self._on_device.copy_(block, non_blocking=True)
            return
        marked = np.zeros(self._slots, dtype=np.bool_)
        for slot in self.changed:
            marked[slot] = True
        # The slot and the words of its row lie together: one copy to the device.
        slots = np.flatnonzero(marked)
        packed = torch.empty(len(slots), 1 + self._words, dtype=torch.int64, pin_memory=pin)
        packed[:, 0] = torch.from_numpy(slots)
        packed[:, 1:] = self._host[packed[:, 0]]
        sent = packed.to(self._device_type, non_blocking=True)
        self._on_device.index_copy_(0, sent[:, 0], sent[:, 1:])
