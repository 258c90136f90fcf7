"""The two kinds of per-slot buffer that V2 shares with processors, with the engine's visibility rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch


class HostBackedTensor:
    """``.np`` on the host holds the values; ``.gpu`` is a snapshot, and a new tensor after every :meth:`flush`.

    vLLM's ``UvaBackedTensor`` cycles through a ring of buffers. So a ``.gpu`` kept from an earlier step shows foreign
    values sooner or later. With ``poison``, flush overwrites the retired snapshot with -1 at once, so that this mistake
    shows.
    """

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device, poison: bool = False) -> None:
        self.cpu = torch.zeros(size, dtype=dtype)
        self.np: npt.NDArray[Any] = self.cpu.numpy()
        self.device = device
        self.poison = poison
        self.gpu = torch.zeros(size, dtype=dtype, device=device)

    def flush(self) -> None:
        """Publish the host values in a new tensor."""
        # Never an inference tensor: it could not be written outside inference mode.
        with torch.inference_mode(False):
            retired, self.gpu = self.gpu, self.cpu.to(self.device, copy=True)
            if self.poison:
                retired.fill_(-1)


class StagedTensor:
    """``.gpu`` always stays the same tensor; host writes reach it at :meth:`apply_write`.

    Args:
        size: length, or (rows, columns).
    """

    def __init__(self, size: int | tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
        self.gpu = torch.zeros(size, dtype=dtype, device=device)
        self._columns = 1 if isinstance(size, int) else size[1]
        self._places: list[int] = []
        self._values: list[int] = []

    def stage_write(self, row: int, start: int, values: Sequence[int]) -> None:
        """Stage ``values`` for ``row``, starting at column ``start``."""
        first = row * self._columns + start
        self._places.extend(range(first, first + len(values)))
        self._values.extend(values)

    def stage_write_elem(self, row: int, value: int) -> None:
        """Stage one value for the first column of ``row``."""
        self._places.append(row * self._columns)
        self._values.append(value)

    def apply_write(self) -> None:
        """Write the staged values; of several writes to one position, the last counts."""
        if not self._places:
            return
        latest = dict(zip(self._places, self._values, strict=True))
        places = torch.tensor(list(latest), dtype=torch.int64)
        values = torch.tensor(list(latest.values()), dtype=self.gpu.dtype)
        self.gpu.view(-1)[places.to(self.gpu.device)] = values.to(self.gpu.device)
        self._places.clear()
        self._values.clear()
