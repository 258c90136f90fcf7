"""Per-request sets of token ids, as bit masks that equal sets share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from lpkit import kernels
from lpkit.columns.column import Declaration, HasSlots, Memory, Scalar
from lpkit.columns.ragged import RaggedColumn
from lpkit.columns.transfer import delivered

SHORT = 256
"""Largest set that is also kept as a list."""

Members = tuple[int, ...] | bytes
"""The ids of a short set, in order; the mask of a long one."""


class TokenSetColumn(RaggedColumn):
    """A set of token ids per request slot; equal sets of different requests share one bit mask.

    ``column[request.slot] = ids`` stages a set on the host; ``column[rows]`` is bool ``[n, vocab]`` on the device. A
    slot's row has the number of its mask, and then the ids of a short set: keeping a few tokens reads only these.
    """

    _first = 1

    def __init__(self, declared: Declaration[Any], slots: int, arena: Memory) -> None:
        super().__init__(declared, SHORT, slots, arena)
        self._vocab_size = arena.vocab_size
        self._masks = _Masks(-(-arena.vocab_size // 8), arena.device)
        self._sets: dict[int, Members] = {}  # by slot, without empty ones
        self._holders: dict[Members, int] = {}
        self._numbers: dict[Members, int] = {}
        self._unheld: dict[Members, None] = {}  # whose masks stay until another set needs the room
        self._long = 0  # slots whose sets have no list
        # The eight bools of each octet, as one number: a mask expands by one lookup per octet.
        bools = (torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1
        self._octets = delivered(bools.to(torch.uint8).view(torch.int64).flatten(), None, arena.device)

    def __setitem__(self, slot: int, value: Scalar | Iterable[Scalar]) -> None:
        """Stage a request's set on the host.

        Args:
            slot: ``request.slot``.
            value: token ids, in any order, repetitions allowed; an empty iterable is the empty set.

        Raises:
            ValueError: an id is outside the vocabulary; in ``admit``, that declines the request.
        """
        given = [value] if isinstance(value, int | float) else list(value)
        ids = sorted({*map(int, given)})
        if ids and not (ids[0] >= 0 and ids[-1] < self._vocab_size):
            raise ValueError(f"a token id is outside the vocabulary of {self._vocab_size}")
        members = tuple(ids) if len(ids) <= SHORT else _mask(ids, self._masks.size)
        if self._sets.get(slot, ()) == members:
            return
        self._let_go(slot)
        super().__setitem__(slot, () if isinstance(members, bytes) else members)
        self._host[slot, 0] = self._hold(slot, members) if members else 0

    def _forget(self, slot: int) -> None:
        super()._forget(slot)
        self._let_go(slot)

    def _hold(self, slot: int, members: Members) -> int:
        """Note that a slot has this set; return the number of its mask."""
        self._sets[slot] = members
        self._holders[members] = self._holders.get(members, 0) + 1
        self._count_long(members, 1)
        return self._number(members)

    def _let_go(self, slot: int) -> None:
        """Note that a slot has its set no more."""
        members = self._sets.pop(slot, None)
        if members is None:
            return
        self._count_long(members, -1)
        self._holders[members] -= 1
        if not self._holders[members]:
            del self._holders[members]
            self._unheld[members] = None

    def _number(self, members: Members) -> int:
        """Return the number of a set's mask, which is written if it is not there."""
        self._unheld.pop(members, None)
        number = self._numbers.get(members)
        if number is None:
            number = len(self._numbers) + 1
            if self._unheld:
                oldest = next(iter(self._unheld))
                del self._unheld[oldest]
                number = self._numbers.pop(oldest)
            self._numbers[members] = number
            if self._masks.make_room(number):
                self._arena.layout += 1
            self._masks.write(number, members if isinstance(members, bytes) else _mask(members, self._masks.size))
            self._arena.dirty = True
        return number

    def _count_long(self, members: Members, more: int) -> None:
        if not isinstance(members, bytes):
            return
        before, self._long = self._long, self._long + more
        if not (before and self._long):  # the lists of all slots come or go
            self._arena.layout += 1

    def _place(self, values: np.ndarray[Any, Any]) -> None:
        moved = hasattr(self, "_host")
        super()._place(values)
        if not moved:
            self._host[:, 0] = 0

    @property
    def used(self) -> bool:
        """True if any request has a non-empty set; reads the host only."""
        return bool(self._sets)

    @property
    def all(self) -> torch.Tensor:
        """``[sets, bytes]`` uint8 on the device: bit ``t % 8`` of byte ``t // 8`` is token ``t``."""
        return self._masks.device

    @property
    def set_of(self) -> torch.Tensor:
        """The number of each slot's set in :attr:`all`, int64 ``[slots + 1, 1]`` on the device; 0: the empty set."""
        return self._device[:, :1]

    @property
    def short_lists(self) -> torch.Tensor | None:
        """The sets as lists, int64 ``[slots + 1, W]`` on the device, padded with -1; None if a set is long."""
        return None if self._long else self._device[:, 1 : 1 + self._width]

    def _indices_of(self, rows: HasSlots) -> torch.Tensor:
        return self._device[:, 0].index_select(0, rows.slots)

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


class _Masks:
    """Bit masks on the host, and their copies on the device. The first is empty; the room for others only grows.

    Attributes:
        size: bytes of a mask.
        device: uint8 ``[masks, size]``; on a CPU the host's own memory.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._host = torch.zeros(1, size, dtype=torch.uint8)
        self.device = delivered(self._host, None, device)
        self._changed: set[int] = set()

    def make_room(self, number: int) -> bool:
        """Make room for a mask of this number; return True if all have moved for it."""
        have = len(self._host)
        if number < have:
            return False
        self._host = torch.cat((self._host, torch.zeros(have, self.size, dtype=torch.uint8)))
        self.device = delivered(self._host, None, self.device.device)
        return True

    def write(self, number: int, mask: bytes) -> None:
        self._host.numpy()[number] = np.frombuffer(mask, dtype=np.uint8)
        self._changed.add(number)

    def flush(self) -> None:
        """Send the masks that changed."""
        if self.device is not self._host:
            for number in self._changed:
                delivered(self._host[number], self.device[number], self.device.device)
        self._changed.clear()


def _mask(ids: Iterable[int], size: int) -> bytes:
    """Bit ``t % 8`` of byte ``t // 8`` is token ``t``."""
    mask = np.zeros(8 * size, dtype=np.bool_)
    mask[[*ids]] = True
    return np.packbits(mask, bitorder="little").tobytes()


def in_set(masks: torch.Tensor, set_of: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Tell for ids ``[n, k]`` if each row's set contains them: the sets' masks, and the sets' numbers ``[n, 1]``."""
    within = ids.clamp(0, masks.shape[1] * 8 - 1)
    octets = masks[set_of, within >> 3].to(torch.int64)
    return (((octets >> (within & 7)) & 1) > 0) & (ids == within)


class token_set(Declaration[TokenSetColumn]):  # noqa: N801
    """Declares a :class:`TokenSetColumn` in a processor's class body."""

    def __init__(self) -> None:
        super().__init__(torch.int64, -1)

    def bind(self, slots: int, arena: Memory) -> TokenSetColumn:
        return TokenSetColumn(self, slots, arena)
