"""A matrix on the host with a copy on the device; only changed rows are sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lpkit.columns.column import NUMPY_TYPES
from lpkit.columns.transfer import sent


class Table:
    """A matrix on the host and its copy on the device. Only changed rows are sent. It grows and never shrinks.

    Args:
        rows, width: initial shape.
        dtype: of the elements.
        fill: value of new elements.
        device: where the copy lives; on the CPU it is the host's own memory.
    """

    def __init__(self, rows: int, width: int, dtype: torch.dtype, fill: float | bool, device: torch.device) -> None:
        self._fill = fill
        self._device_type = device
        self._changed: set[int] = set()
        self.host: np.ndarray[Any, Any] = np.full((rows, width), fill, dtype=NUMPY_TYPES[dtype])
        self.device = sent(torch.from_numpy(self.host), device)

    def write(self, row: int, values: Any) -> None:
        """Put ``values`` at the start of a row and the fill behind them."""
        count = len(values)
        self.host[row, :count] = values
        self.host[row, count:] = self._fill
        self._changed.add(row)

    def grow(self, rows: int, width: int) -> None:
        """Make room, at least doubling, so that growth is rare."""
        have_rows, have_width = self.host.shape
        if rows <= have_rows and width <= have_width:
            return
        shape = tuple(
            have if need <= have else max(need, 2 * have) for need, have in ((rows, have_rows), (width, have_width))
        )
        grown = np.full(shape, self._fill, dtype=self.host.dtype)
        grown[:have_rows, :have_width] = self.host
        self.host = grown
        self.device = sent(torch.from_numpy(grown), self._device_type)
        self._changed.clear()

    def flush(self) -> None:
        """Send the rows that changed."""
        changed = sorted(self._changed)
        self._changed.clear()
        if not changed or self.device.data_ptr() == self.host.ctypes.data:
            return
        rows, block = torch.tensor(changed), torch.from_numpy(self.host[changed])
        self.device.index_copy_(0, sent(rows, self._device_type), sent(block, self._device_type))
