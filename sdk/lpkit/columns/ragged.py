"""Per-request values of variable size: lists of token ids, biases, markers."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any, ClassVar

import torch

from lpkit.columns.column import Column, Declaration, HasSlots, Memory, Scalar
from lpkit.columns.widths import padded


class ListTooLongError(ValueError):
    """A list is longer than its column's limit."""


class RaggedColumn(Column):
    """A list of values per request slot.

    ``column[request.slot] = [...]`` stages a list on the host; a set is sorted first. ``column[rows]`` is ``[n, W]`` on
    the device, each row padded with the fill. ``W`` is a power of two, at least the longest list held.
    """

    _first: ClassVar[int] = 0
    """Values of a slot's row before its list."""

    def __init__(self, declared: Declaration[Any], limit: int, slots: int, arena: Memory) -> None:
        super().__init__(declared, arena)
        self._scalar = False
        self._limit = limit
        self._lengths = [0] * (slots + 1)
        self._of_width = {1: slots + 1}  # number of lists that need each width, a power of two
        self._width = 1

    def __setitem__(self, slot: int, value: Scalar | Iterable[Scalar]) -> None:
        """Stage a request's list on the host.

        Args:
            slot: ``request.slot``.
            value: the list; it may be empty. A single number becomes a list. A set is sorted.

        Raises:
            ListTooLongError: the list is longer than the column's limit (a ``ValueError``). In ``admit`` it declines
            the request. To tell the client, limit the field of ``Params``.
        """
        values = value if isinstance(value, list | tuple) else _listed(value)
        count = len(values)
        if count > self._limit:
            raise ListTooLongError(f"{count} values; at most {self._limit} are kept per request")
        before = self._lengths[slot]
        self._resize(slot, count)
        held = self._host[slot, self._first :]
        if count < before:
            held[count:before] = self._default
        held[:count] = values
        self._changed.append(slot)

    def at(self, rows: HasSlots, positions: torch.Tensor) -> torch.Tensor:
        """Return list elements by their position.

        Args:
            rows: the rows that ``process`` or ``edit`` got.
            positions: int64 ``[n, k]``; behind a list it reads the fill, or the last element of the longest list.

        Returns:
            ``[n, k]``, on the device.
        """
        return element_at(self[rows], positions)

    def _resize(self, slot: int, count: int) -> None:
        """Record a slot's new length; the width follows the longest list."""
        before, after = padded(self._lengths[slot]), padded(count)
        self._lengths[slot] = count
        if before == after:
            return
        of_width = self._of_width
        of_width[before] -= 1
        of_width[after] = of_width.get(after, 0) + 1
        if after > self._width:
            self._set_width(after)
        elif before == self._width and not of_width[before]:
            self._set_width(max(width for width, lists in of_width.items() if lists))

    def _set_width(self, width: int) -> None:
        self._width = width
        self._arena.layout += 1
        if self._needed > self._room:
            self._arena.lay_out()

    def _forget(self, slot: int) -> None:
        if self._lengths[slot]:
            self._resize(slot, 0)

    @property
    def used(self) -> bool:
        """True if any request has a non-empty list; reads the host only."""
        return any(self._lengths)

    @property
    def all(self) -> torch.Tensor:
        """``[slots + 1, W]`` on the device. No request ever gets the last slot."""
        return self._device[:, : self._width]

    @property
    def _needed(self) -> int:
        return self._first + self._width

    def _part(self, memory: torch.Tensor, start: int, width: int | None = None) -> torch.Tensor:
        return memory.narrow(1, start, width or self._width)


def element_at(lists: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return elements of lists ``[n, W]`` at positions ``[n, k]``, or at the nearest ones."""
    return lists.gather(1, positions.clamp(0, lists.shape[1] - 1))


def _listed(value: Scalar | Iterable[Scalar]) -> list[Scalar]:
    if isinstance(value, Set):
        return sorted(value)  # equal sets give equal lists
    return list(value) if isinstance(value, Iterable) else [value]


class ragged(Declaration[RaggedColumn]):  # noqa: N801 - used as a declaration, like dataclasses.field
    """Declares a :class:`RaggedColumn` in a processor's class body.

    Args:
        dtype: bool, uint8, int32, int64, float32 or float64.
        fill: pads each list; -1 is a token id that ``SparseLogits`` ignores.
        limit: longest list that a request may have; a longer one declines the request.
    """

    def __init__(self, dtype: torch.dtype, *, fill: Scalar = -1, limit: int = 1024) -> None:
        super().__init__(dtype, fill)
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        self.limit = limit

    def bind(self, slots: int, arena: Memory) -> RaggedColumn:
        return RaggedColumn(self, self.limit, slots, arena)
