"""Per-request sets of token ids, as bit masks that equal sets share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from lpkit import kernels
from lpkit.columns.buffer import Table
from lpkit.columns.column import Column, Declaration, HasSlots, Memory, Scalar
from lpkit.columns.widths import padded

SHORT = 256
"""Largest set that is also kept as a list."""


class TokenSetColumn(Column):
    """A set of token ids per request slot; equal sets of different requests share one bit mask.

    ``column[request.slot] = ids`` stages a set on the host; ``column[rows]`` is bool ``[n, vocab]`` on the device.
    """

    def __init__(self, slots: int, vocab_size: int, device: torch.device, arena: Memory) -> None:
        self._vocab_size = vocab_size
        self._arena = arena
        size = -(-vocab_size // 8)
        self._empty = bytes(size)
        self._indices: dict[bytes, int] = {self._empty: 0}
        self._held = [self._empty] * (slots + 1)
        self._holders = {self._empty: slots + 1}
        self._free: list[int] = []
        self._masks = Table(1, size, torch.uint8, 0, device)
        # Short sets are kept as lists, too: then keeping a few tokens reads only those tokens.
        self._lengths = np.zeros(slots + 1, dtype=np.int64)
        self._ids = Table(slots + 1, 1, torch.int64, -1, device)
        self._index_of = Table(slots + 1, 1, torch.int64, 0, device)
        # The eight bools of each octet, as one number: a mask expands by one lookup per octet.
        bools = (torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1
        self._octets = bools.to(torch.uint8).view(torch.int64).flatten().to(device)

    def __setitem__(self, slot: int, value: Scalar | Iterable[Scalar]) -> None:
        """Stage a request's set on the host.

        Args:
            slot: ``request.slot``.
            value: token ids, in any order, repetitions allowed; an empty iterable is the empty set.

        Raises:
            ValueError: an id is outside the vocabulary; in ``admit``, that declines the request.
        """
        ids = np.asarray(value if isinstance(value, int | float | np.ndarray) else list(value), dtype=np.int64)
        if ids.size and not (ids.min() >= 0 and ids.max() < self._vocab_size):
            raise ValueError(f"a token id is outside the vocabulary of {self._vocab_size}")
        member = np.zeros(self._vocab_size, dtype=np.bool_)
        member[ids] = True
        distinct = np.flatnonzero(member)
        self._list(slot, distinct if len(distinct) <= SHORT else distinct[:0], len(distinct))
        self._hold(slot, np.packbits(member, bitorder="little").tobytes())

    def reset(self, slot: int) -> None:
        self._forget(slot)

    def _forget(self, slot: int) -> None:
        if self._lengths[slot]:
            self._list(slot, (), 0)
        self._hold(slot, self._empty)

    def _list(self, slot: int, ids: Sequence[int] | np.ndarray[Any, Any], length: int) -> None:
        self._lengths[slot] = length
        self._ids.grow(0, padded(len(ids)))
        self._ids.write(slot, ids)

    def _hold(self, slot: int, mask: bytes) -> None:
        old = self._held[slot]
        if mask == old:
            return
        self._holders[old] -= 1
        if not self._holders[old] and old != self._empty:
            del self._holders[old]
            self._free.append(self._indices.pop(old))
        if mask not in self._indices:
            index = self._free.pop() if self._free else len(self._indices)
            self._masks.grow(index + 1, 0)
            self._masks.write(index, np.frombuffer(mask, dtype=np.uint8))
            self._indices[mask] = index
        self._holders[mask] = self._holders.get(mask, 0) + 1
        self._held[slot] = mask
        self._index_of.write(slot, [self._indices[mask]])
        self._arena.dirty = True

    @property
    def used(self) -> bool:
        """True if any request has a non-empty set; reads the host only."""
        return bool(self._lengths.any())

    @property
    def all(self) -> torch.Tensor:
        """``[sets, bytes]`` uint8 on the device: bit ``t % 8`` of byte ``t // 8`` is token ``t``."""
        return self._masks.device

    @property
    def set_of(self) -> torch.Tensor:
        """The number of each slot's set in :attr:`all`, int64 ``[slots + 1, 1]`` on the device; 0: the empty set."""
        return self._index_of.device

    @property
    def short_lists(self) -> torch.Tensor | None:
        """The sets as lists, int64 ``[slots + 1, W]`` on the device, padded with -1; None if a set is long."""
        longest = int(self._lengths.max())
        return self._ids.device[:, : padded(longest)] if longest <= SHORT else None

    def _indices_of(self, rows: HasSlots) -> torch.Tensor:
        return self._index_of.device[:, 0].index_select(0, rows.slots)

    def __getitem__(self, rows: HasSlots) -> torch.Tensor:
        """Return the sets for some rows.

        Args:
            rows: the rows that ``process`` or ``edit`` got.

        Returns:
            bool ``[n, vocab]``, on the device.
        """
        masks = self.all.index_select(0, self._indices_of(rows))
        bools = self._octets.index_select(0, masks.flatten().to(torch.int32)).view(torch.bool)
        return bools.view(masks.shape[0], -1)[:, : self._vocab_size]

    def keep_only_(self, logits: torch.Tensor, rows: HasSlots) -> torch.Tensor:
        """Mask, in place, all tokens outside of their row's set.

        Args:
            logits: float32 ``[n, vocab]``.
            rows: the rows that ``process`` got.

        Returns:
            ``logits``. A row is unchanged if its set is empty, or if no token would be left.
        """
        lists = self.short_lists
        if lists is not None:
            return kernels.keep_ids_(logits, lists.index_select(0, rows.slots))
        indices = self._indices_of(rows)
        memory = (torch.float32, torch.float32)
        spare: torch.Tensor | None = None
        for block, some, outside, scratch in kernels.blocks(logits, indices, scratch=memory):
            octets = self.all.index_select(0, some).bitwise_not_()
            if spare is None:
                spare = self._octets.new_empty(octets.numel())
            bools = torch.index_select(self._octets, 0, octets.flatten().to(torch.int32), out=spare[: octets.numel()])
            outside.copy_(bools.view(torch.uint8).view(octets.shape[0], -1)[:, : self._vocab_size])
            kernels.keep_members_(block, outside, scratch)
        return logits

    def contains(self, rows: HasSlots, ids: torch.Tensor) -> torch.Tensor:
        """Tell for each token id if its row's set contains it.

        Args:
            rows: the rows that ``process`` or ``edit`` got.
            ids: int64 ``[n, k]``; k may be 0.

        Returns:
            bool ``[n, k]``; False for ids outside the vocabulary, -1 included.
        """
        return in_set(self.all, self._indices_of(rows).unsqueeze(1), ids)

    def flush(self) -> None:
        self._masks.flush()
        self._index_of.flush()
        self._ids.flush()


def in_set(masks: torch.Tensor, set_of: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Tell for ids ``[n, k]`` if each row's set contains them: the sets' masks, and the sets' numbers ``[n, 1]``."""
    within = ids.clamp(0, masks.shape[1] * 8 - 1)
    octets = masks[set_of, within >> 3].to(torch.int64)
    return (((octets >> (within & 7)) & 1) > 0) & (ids == within)


class token_set(Declaration[TokenSetColumn]):  # noqa: N801
    """Declares a :class:`TokenSetColumn` in a processor's class body."""

    def __init__(self) -> None:
        super().__init__(torch.uint8, 0)

    def separate(self, slots: int, vocab_size: int, device: torch.device, arena: Memory) -> TokenSetColumn:
        return TokenSetColumn(slots, vocab_size, device, arena)
