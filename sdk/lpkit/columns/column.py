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


class HasSlots(Protocol):
    """What a column is read for: :class:`lpkit.Rows`."""

    @property
    def slots(self) -> torch.Tensor:
        """``[n]`` int64."""


class Column:
    """One value (or ``width`` values) per request slot.

    ``column[request.slot] = value`` stages a write on the host; ``column[rows]`` is the device tensor ``[n]``
    (``[n, width]``) of the rows at hand.
    """

    def __init__(self, host: np.ndarray[Any, Any], default: Scalar, arena: Arena) -> None:
        self._host = host
        self._default = default
        self._arena = arena
        self._device: torch.Tensor | None = None

    def __setitem__(self, slot: int, value: Scalar | Sequence[Scalar]) -> None:
        """Stage a request's value on the host; all that was staged is copied once per step.

        Args:
            slot: ``request.slot``.
            value: a number, or ``width`` of them.
        """
        self._host[slot] = value
        self._arena.dirty = True

    def reset(self, slot: int) -> None:
        """Put the default back, so that a slot's next occupant finds nothing of the last one's; the SDK does it.

        Args:
            slot: the slot of a request that left.
        """
        self._host[slot] = self._default
        self._arena.dirty = True

    @property
    def used(self) -> bool:
        """Whether any request has another value than the default; the host knows, so what nobody asked for can be left
        out."""
        return bool((self._host != self._default).any())

    @property
    def all(self) -> torch.Tensor:
        """``[slots + 1]`` (``[slots + 1, width]``) on the device; the last slot is never given out."""
        assert self._device is not None
        return self._device

    def __getitem__(self, rows: HasSlots) -> torch.Tensor:
        """The values of the rows at hand.

        Args:
            rows: what ``process`` or ``edit`` was given.

        Returns:
            ``[n]`` or ``[n, width]``, on the device.
        """
        return self.all.index_select(0, rows.slots)

    def flush(self) -> None:
        """Send what was staged; the arena does it for columns that live in it."""


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
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self: DeclarationT, instance: None, owner: type) -> DeclarationT: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> ColumnT: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance._columns[self.name]

    def __set__(self, instance: Any, value: object) -> None:
        raise AttributeError(f"write {self.name}[request.slot] = value; do not replace the column itself")

    def separate(self, slots: int, vocab_size: int, device: torch.device, arena: Arena) -> Column | None:
        """The column, if it has its own memory; None if it is part of the arena."""
        return None


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
    """Host and device memory of all columns of one processor: one buffer each, one copy per step.

    Args:
        declared: columns by name.
        slots: how many requests can hold a slot; one more slot keeps the defaults.
        device: where the columns are read.
        vocab_size: of the engine, for columns that hold sets of tokens.
    """

    def __init__(
        self, declared: Mapping[str, Declaration[Any]], slots: int, device: torch.device, vocab_size: int = 0
    ) -> None:
        self.dirty = False
        self._device_type = device.type
        separate = {name: item.separate(slots, vocab_size, device, self) for name, item in declared.items()}
        self._separate = {name: bound for name, bound in separate.items() if bound is not None}
        layout: list[tuple[str, Declaration[Any], int, int]] = []
        size = 0
        # Widest items first keeps every view aligned without padding.
        shared = [(name, item) for name, item in declared.items() if name not in self._separate]
        for name, item in sorted(shared, key=lambda entry: -entry[1].dtype.itemsize):
            length = (slots + 1) * (item.width or 1) * item.dtype.itemsize
            layout.append((name, item, size, length))
            size += length
        self._host = torch.zeros(size, dtype=torch.uint8)
        # On the CPU the host buffer is what `column[rows]` reads: there is nothing to copy.
        self._on_device = self._host if device.type == "cpu" else torch.zeros(size, dtype=torch.uint8, device=device)
        self._pin = device.type == "cuda"
        self.columns: dict[str, Column] = {**self._separate}
        raw = self._host.numpy()
        for name, item, start, length in layout:
            host: np.ndarray[Any, Any] = raw[start : start + length].view(NUMPY_TYPES[item.dtype])
            on_device = self._on_device[start : start + length].view(item.dtype)
            if item.width is not None:
                host, on_device = host.reshape(slots + 1, item.width), on_device.view(slots + 1, item.width)
            host[...] = item.default
            bound = Column(host, item.default, self)
            bound._device = on_device
            self.columns[name] = bound
        self.dirty = size > 0

    def flush(self) -> None:
        """Copy what was staged, if anything was."""
        if not self.dirty:
            return
        self.dirty = False
        for item in self._separate.values():
            item.flush()
        if self._on_device is self._host:
            return
        # A fresh pinned block per flush: the caching host allocator keeps it until the copy is done, so a
        # step still in flight never sees the next one's values.
        block = torch.empty_like(self._host, pin_memory=self._pin)
        block.copy_(self._host)
        self._on_device.copy_(block, non_blocking=True)
