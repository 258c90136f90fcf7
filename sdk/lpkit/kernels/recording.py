"""Records which functions of :mod:`lpkit.kernels` edit a batch, to repeat them by slot in each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

BY_SLOT = {
    "dynamic_temperature_": torch.float32,
    "keep_ids_": torch.int64,
    "mask_deviations_below_top_": torch.float64,
    "mask_far_below_top_": torch.float32,
    "mask_unlikely_": torch.float32,
}
"""Functions whose kernels read per-row values by slot, and the type of these values."""


class NotRecordableError(Exception):
    """A step does more than call functions of :data:`BY_SLOT` with columns."""


class OfSlots:
    """Stands for the values of some rows: the entries of ``column``, ``[slots + 1, ...]``, at the rows' slots."""

    def __init__(self, column: torch.Tensor) -> None:
        self.column = column

    @property
    def dtype(self) -> torch.dtype:
        return self.column.dtype

    def unsqueeze(self, dim: int) -> OfSlots:
        if dim not in (1, -1) or self.column.ndim != 1:
            raise NotRecordableError(f"unsqueeze({dim})")
        return OfSlots(self.column.unsqueeze(1))


class Recorder:
    """Stands for the logits of a batch, and for the kernels that edit them.

    Attributes:
        calls: name and columns of each call, in order.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[torch.Tensor | None, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Recorder]:
        if name not in BY_SLOT:
            raise NotRecordableError(name)
        return partial(self._record, name)

    def _record(self, name: str, logits: Recorder, *values: Any) -> Recorder:
        flagged = name == "keep_ids_" and values[1:] not in ((), (None,))
        columns = tuple(None if value is None else _column(value, BY_SLOT[name]) for value in values)
        if flagged:
            raise NotRecordableError(name)
        self.calls.append((name, columns))
        return logits


def _column(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the column that ``value`` stands for. A copy of another type would keep the values of one step."""
    if type(value) is not OfSlots or value.column.ndim != 2 or value.dtype != dtype:
        raise NotRecordableError(value)
    return value.column
