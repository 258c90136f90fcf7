"""Copies from the host to the device."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import torch


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy to the device without blocking the host.

    Pinned memory is fresh each time and kept until the copy is done. So a step in flight never sees the next step's
    values.

    Args:
        values: on the host.
        device: the destination; for the CPU, ``values`` is returned.
    """
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


PAGES = 4
"""Copies of an :class:`Outbox` that may be in flight."""


class Outbox:
    """Two rows of numbers that go to the same memory of the device in every step, by one copy without new memory.

    Args:
        count: of the numbers in a row.
        device: where they go; on a CPU it is the host's own memory.

    Attributes:
        device: int64 ``[2, count]``.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        cuda = device.type == "cuda"
        with torch.inference_mode(False):  # the engine may call inside and outside of this mode
            self.device = torch.zeros(2, count, dtype=torch.int64, device=device)
            self._pages = [self.device]
            if device.type != "cpu":
                self._pages = [torch.zeros(2, count, dtype=torch.int64, pin_memory=cuda) for _ in range(PAGES)]
        row: Any = ctypes.c_int64 * (2 * count)
        self._rows = [row.from_address(page.data_ptr()) for page in self._pages]
        event: Any = torch.cuda.Event
        self._copied = [event() for _ in self._pages] if cuda else []
        self._pack = struct.Struct(f"={8 * count}s{count}q").pack_into
        self._number = 0

    def send(self, first: bytes, second: Sequence[int]) -> None:
        """Send both rows, the first as its bytes. Waits only for the copy that was made :data:`PAGES` steps ago."""
        number = self._number = (self._number + 1) % len(self._pages)
        if self._copied:
            self._copied[number].synchronize()
        self._pack(self._rows[number], 0, first, *second)  # faster than numpy, which looks at each number twice
        page = self._pages[number]
        if page is not self.device:
            self.device.copy_(page, non_blocking=True)
            if self._copied:
                self._copied[number].record()
