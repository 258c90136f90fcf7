"""Per-request values on the device: written on the host one request at a time, copied once per step."""

from __future__ import annotations

from collections.abc import Sequence
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


class HasSlots(Protocol):
    """Rows whose values can be read: :class:`lpkit.Rows`."""

    _gathered: Any  # kept by the memory that was read

    @property
    def slots(self) -> torch.Tensor:
        """``[n]`` int64."""


class Memory(Protocol):
    """Holds a processor's columns: :class:`lpkit.columns.memory.Arena`."""

    device: torch.device
    vocab_size: int
    changed: list[int]
    dirty: bool
    layout: int

    def lay_out(self) -> None: ...

    def gather(self, rows: HasSlots, item: object, dtype: torch.dtype) -> torch.Tensor: ...


class Column:
    """One value (or ``width`` values) per request slot.

    ``column[request.slot] = value`` stages a write on the host. ``column[rows]`` is the device tensor ``[n]``
    (``[n, width]``) for the rows of the call. The first read in a step fetches all columns of the processor, so the
    result is strided: ``reshape`` flattens it, ``view`` may not. The caller may edit the result in place.

    Args:
        declared: type, default and width.
        arena: holds the column's memory.
    """

    def __init__(self, declared: Declaration[Any], arena: Memory) -> None:
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
        """Stage a request's value on the host; all staged values are copied once per step.

        Args:
            slot: ``request.slot``.
            value: a number, or ``width`` numbers.
        """
        self._host[slot] = value
        self._changed.append(slot)

    def reset(self, slot: int) -> None:
        """Restore the default, so that the slot's next request sees nothing of its predecessor; the SDK calls this.

        Args:
            slot: the slot of a request that left.
        """
        self._forget(slot)
        self._host[slot] = self._host[-1]
        self._changed.append(slot)

    def _forget(self, slot: int) -> None:
        """Drop request state that is kept outside the arena's row."""

    @property
    def forgets(self) -> bool:
        """True if the column keeps request state outside the arena's row."""
        return type(self)._forget is not Column._forget

    @property
    def used(self) -> bool:
        """True if any request has a value other than the default. Reads the host only, so a processor can skip work for
        unused columns."""
        return bool((self._host != self._default).any())

    @property
    def all(self) -> torch.Tensor:
        """``[slots + 1]`` (``[slots + 1, width]``) on the device. No request ever gets the last slot."""
        return self._device

    def __getitem__(self, rows: HasSlots) -> torch.Tensor:
        """Return the values for some rows.

        Args:
            rows: the rows that ``process`` or ``edit`` got.

        Returns:
            ``[n]`` or ``[n, width]``, on the device.
        """
        return self._part(self._arena.gather(rows, self, self._dtype), self._start)

    def _unsqueezed(self, rows: HasSlots) -> torch.Tensor:
        """Return ``self[rows].unsqueeze(1)``, by one operation."""
        return self._arena.gather(rows, self, self._dtype).narrow(1, self._start, 1)

    def flush(self) -> None:
        """Send what is staged outside the arena's row."""

    @property
    def _needed(self) -> int:
        """Values per slot that need room."""
        return self._room

    def _place(self, values: np.ndarray[Any, Any]) -> None:
        """Move into new host memory, ``[slots + 1, room]``."""
        values[...] = self._default
        if hasattr(self, "_host"):
            old = self._host.reshape(len(values), -1)
            kept = min(old.shape[1], values.shape[1])
            values[:, :kept] = old[:, :kept]
        self._room = values.shape[1]
        self._host = values[:, 0] if self._scalar else values

    def _find(self, memory: torch.Tensor, start: int) -> None:
        """Read from new device memory, viewed as this column's type, starting at ``start`` in each row."""
        self._start = start
        self._device = self._part(memory, start, self._room)

    def _part(self, memory: torch.Tensor, start: int, width: int | None = None) -> torch.Tensor:
        if self._scalar:
            return memory.select(1, start)
        return memory.narrow(1, start, width or self._room)


ColumnT = TypeVar("ColumnT", bound=Column, covariant=True)
DeclarationT = TypeVar("DeclarationT", bound="Declaration[Any]")


class Declaration(Generic[ColumnT]):
    """Declares a column in a processor's class body; each instance gets a column of its own.

    Args:
        dtype: bool, uint8, int32, int64, float32 or float64.
        default: value of slots that nothing was written to.
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

    def bind(self, slots: int, arena: Memory) -> Column:
        """The column of an instance, for as many requests and the one slot of nobody."""
        return Column(self, arena)


class column(Declaration[Column]):  # noqa: N801 - used as a declaration, like dataclasses.field
    """Declares a :class:`Column` in a processor's class body.

    Args:
        dtype: bool, uint8, int32, int64, float32 or float64.
        default: value of slots that nothing was written to.
        width: number of values per request; None for a single value.
    """

    def __init__(self, dtype: torch.dtype, *, default: Scalar = 0, width: int | None = None) -> None:
        super().__init__(dtype, default)
        if width is not None and width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        self.width = width
