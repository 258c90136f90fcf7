"""Records which functions of :mod:`lpkit.kernels` edit a batch, to repeat them by slot in each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

BY_SLOT = frozenset(
    {"dynamic_temperature_", "keep_ids_", "mask_deviations_below_top_", "mask_far_below_top_", "mask_unlikely_"}
)
"""Functions whose kernels read per-row values by slot."""


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
        if flagged or not all(value is None or (type(value) is OfSlots and value.column.ndim == 2) for value in values):
            raise NotRecordableError(name)
        self.calls.append((name, tuple(None if value is None else value.column for value in values)))
        return logits
