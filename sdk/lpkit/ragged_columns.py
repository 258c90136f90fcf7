"""Per-request values of variable size: lists (token ids, biases, markers) and sets of token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import torch

from lpkit import kernels
from lpkit.columns import NUMPY_TYPES, Arena, Column, HasSlots, Scalar, column


class Table:
    """A matrix on the host and its copy on the device; only rows that changed are sent. It grows, never shrinks.

    Args:
        rows, width: initial shape.
        dtype: of the elements.
        fill: what new elements hold.
        device: where the copy lives; on the CPU it is the host's own memory.
    """

    def __init__(self, rows: int, width: int, dtype: torch.dtype, fill: Scalar, device: torch.device) -> None:
        self._fill = fill
        self._device_type = device
        self._changed: set[int] = set()
        self.host: np.ndarray[Any, Any] = np.full((rows, width), fill, dtype=NUMPY_TYPES[dtype])
        self.device = torch.from_numpy(self.host).to(device)

    def write(self, row: int, values: Any) -> None:
        """Put ``values`` at the start of a row, the fill behind them."""
        count = len(values)
        self.host[row, :count] = values
        self.host[row, count:] = self._fill
        self._changed.add(row)

    def grow(self, rows: int, width: int) -> None:
        """Make room, at least doubling, so that this happens rarely."""
        have_rows, have_width = self.host.shape
        if rows <= have_rows and width <= have_width:
            return
        shape = tuple(
            have if need <= have else max(need, 2 * have) for need, have in ((rows, have_rows), (width, have_width))
        )
        grown = np.full(shape, self._fill, dtype=self.host.dtype)
        grown[:have_rows, :have_width] = self.host
        self.host = grown
        self.device = torch.from_numpy(grown).to(self._device_type)
        self._changed.clear()

    def flush(self) -> None:
        """Send the rows that changed."""
        changed = sorted(self._changed)
        self._changed.clear()
        if not changed or self._device_type.type == "cpu":
            return
        rows, block = torch.tensor(changed), torch.from_numpy(self.host[changed])
        if self._device_type.type == "cuda":
            # Fresh pinned memory each time: a step still in flight never sees the next one's values.
            rows, block = rows.pin_memory(), block.pin_memory()
        rows, block = (part.to(self._device_type, non_blocking=True) for part in (rows, block))
        self.device.index_copy_(0, rows, block)


class RaggedColumn(Column):
    """A list of values per request slot.

    ``column[request.slot] = [...]`` stages a list on the host; ``column[rows]`` is ``[n, W]`` on the device, each
    row padded with the fill. ``W`` is a power of two, at least the longest list held.
    """

    def __init__(self, declared: ragged, slots: int, device: torch.device, arena: Arena) -> None:
        self._limit = declared.limit
        self._arena = arena
        self._lengths = np.zeros(slots + 1, dtype=np.int64)
        self._width = 1
        self._table = Table(slots + 1, 1, declared.dtype, declared.default, device)

    def __setitem__(self, slot: int, value: Scalar | Sequence[Scalar]) -> None:
        values = value if isinstance(value, Sequence) else [value]
        if len(values) > self._limit:
            raise ValueError(f"{len(values)} values; at most {self._limit} are kept per request")
        self._lengths[slot] = len(values)
        self._width = 1 << (max(int(self._lengths.max()), 1) - 1).bit_length()
        self._table.grow(0, self._width)
        self._table.write(slot, values)
        self._arena.dirty = True

    def reset(self, slot: int) -> None:
        """Empty the slot's list."""
        if self._lengths[slot]:
            self[slot] = []

    @property
    def all(self) -> torch.Tensor:
        """``[slots + 1, W]`` on the device; the last slot is never given out."""
        return self._table.device[:, : self._width]

    def flush(self) -> None:
        self._table.flush()


class ragged(column):  # noqa: N801 - used as a declaration, like dataclasses.field
    """Declares a :class:`RaggedColumn` in a processor's class body.

    Args:
        dtype: bool, uint8, int32, int64, float32 or float64.
        fill: stands behind the end of each list; -1 is a token id that ``SparseLogits`` ignores.
        limit: longest list that a request may have; a longer one declines the request.
    """

    def __init__(self, dtype: torch.dtype, *, fill: Scalar = -1, limit: int = 1024) -> None:
        super().__init__(dtype, default=fill)
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        self.limit = limit

    def separate(self, slots: int, vocab_size: int, device: torch.device, arena: Arena) -> Column:
        return RaggedColumn(self, slots, device, arena)


SHORT = 256
"""Tokens of a set that is also kept as a list."""


class TokenSetColumn(Column):
    """A set of token ids per request slot; equal sets share one bit mask, whoever holds them.

    ``column[request.slot] = ids`` stages a set on the host; ``column[rows]`` is bool ``[n, vocab]`` on the device.
    """

    def __init__(self, slots: int, vocab_size: int, device: torch.device, arena: Arena) -> None:
        self._vocab_size = vocab_size
        self._arena = arena
        size = -(-vocab_size // 8)
        self._empty = bytes(size)
        self._places: dict[bytes, int] = {self._empty: 0}
        self._held = [self._empty] * (slots + 1)
        self._holders = {self._empty: slots + 1}
        self._free: list[int] = []
        self._masks = Table(1, size, torch.uint8, 0, device)
        # Short sets as lists too: to keep a few tokens, only those need to be looked at.
        self._lengths = np.zeros(slots + 1, dtype=np.int64)
        self._ids = Table(slots + 1, 1, torch.int64, -1, device)
        self._place_of = Table(slots + 1, 1, torch.int64, 0, device)
        # The eight bools of each octet, as one number: expanding a mask is one lookup per octet.
        bools = (torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1
        self._octets = bools.to(torch.uint8).view(torch.int64).flatten().to(device)

    def __setitem__(self, slot: int, value: Scalar | Iterable[Scalar]) -> None:
        ids = [value] if isinstance(value, int | float) else list(value)
        if not all(0 <= token < self._vocab_size for token in ids):
            raise ValueError(f"a token id is outside the vocabulary of {self._vocab_size}")
        member = np.zeros(self._vocab_size, dtype=np.bool_)
        member[np.asarray(ids, dtype=np.int64)] = True
        distinct = np.flatnonzero(member)
        self._list(slot, distinct if len(distinct) <= SHORT else distinct[:0], len(distinct))
        self._hold(slot, np.packbits(member, bitorder="little").tobytes())

    def reset(self, slot: int) -> None:
        """Empty the slot's set."""
        if self._lengths[slot]:
            self._list(slot, (), 0)
        self._hold(slot, self._empty)

    def _list(self, slot: int, ids: Sequence[int] | np.ndarray[Any, Any], length: int) -> None:
        self._lengths[slot] = length
        self._ids.grow(0, 1 << (max(len(ids), 1) - 1).bit_length())
        self._ids.write(slot, ids)

    def _hold(self, slot: int, mask: bytes) -> None:
        old = self._held[slot]
        if mask == old:
            return
        self._holders[old] -= 1
        if not self._holders[old] and old != self._empty:
            del self._holders[old]
            self._free.append(self._places.pop(old))
        if mask not in self._places:
            place = self._free.pop() if self._free else len(self._places)
            self._masks.grow(place + 1, 0)
            self._masks.write(place, np.frombuffer(mask, dtype=np.uint8))
            self._places[mask] = place
        self._holders[mask] = self._holders.get(mask, 0) + 1
        self._held[slot] = mask
        self._place_of.write(slot, [self._places[mask]])
        self._arena.dirty = True

    @property
    def all(self) -> torch.Tensor:
        """``[sets, bytes]`` uint8 on the device: bit ``t % 8`` of byte ``t // 8`` is token ``t``."""
        return self._masks.device

    def _places_of(self, rows: HasSlots) -> torch.Tensor:
        return self._place_of.device[:, 0].index_select(0, rows.slots)

    def __getitem__(self, rows: HasSlots) -> torch.Tensor:
        masks = self.all.index_select(0, self._places_of(rows))
        bools = self._octets.index_select(0, masks.flatten().to(torch.int32)).view(torch.bool)
        return bools.view(masks.shape[0], -1)[:, : self._vocab_size]

    def keep_only_(self, logits: torch.Tensor, rows: HasSlots) -> torch.Tensor:
        """Mask, in place, the tokens of ``logits`` ``[n, vocab]`` that are not in their row's set; return them.

        A row that would have nothing left is left alone.
        """
        longest = int(self._lengths.max())
        if longest <= SHORT:
            width = 1 << (max(longest, 1) - 1).bit_length()
            return kernels.keep_ids_(logits, self._ids.device[:, :width].index_select(0, rows.slots))
        places = self._places_of(rows)
        memory = (torch.float32, torch.float32)
        spare: torch.Tensor | None = None
        for block, some, outside, scratch in kernels.blocks(logits, places, scratch=memory):
            octets = self.all.index_select(0, some).bitwise_not_()
            if spare is None:
                spare = self._octets.new_empty(octets.numel())
            found = torch.index_select(self._octets, 0, octets.flatten().to(torch.int32), out=spare[: octets.numel()])
            outside.copy_(found.view(torch.uint8).view(octets.shape[0], -1)[:, : self._vocab_size])
            kernels.keep_members_(block, outside, scratch)
        return logits

    def contains(self, rows: HasSlots, ids: torch.Tensor) -> torch.Tensor:
        """Which of ``ids`` ``[n, k]`` are in their row's set: bool ``[n, k]``; -1 is in none."""
        known = ids.clamp(min=0)
        octets = self.all[self._places_of(rows).unsqueeze(1), known >> 3].to(torch.int64)
        return (((octets >> (known & 7)) & 1) > 0) & (ids >= 0)

    def flush(self) -> None:
        self._masks.flush()
        self._place_of.flush()
        self._ids.flush()


class token_set(column):  # noqa: N801
    """Declares a :class:`TokenSetColumn` in a processor's class body."""

    def __init__(self) -> None:
        super().__init__(torch.uint8)

    @overload
    def __get__(self, instance: None, owner: type) -> token_set: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> TokenSetColumn: ...
    def __get__(self, instance: Any, owner: type) -> token_set | TokenSetColumn:
        found: Any = super().__get__(instance, owner)
        declared_or_bound: token_set | TokenSetColumn = found
        return declared_or_bound

    def separate(self, slots: int, vocab_size: int, device: torch.device, arena: Arena) -> Column:
        return TokenSetColumn(slots, vocab_size, device, arena)
