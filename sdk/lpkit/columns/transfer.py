"""Copies from the host to the device."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch


def pinned(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return values of the host in fresh memory from which a GPU copies while the host goes on; for others, ``values``.

    The memory is kept until the copy is done. So a step in flight never sees the next step's values.
    """
    return values.pin_memory() if device.type == "cuda" else values


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy to the device without blocking the host.

    Args:
        values: on the host.
        device: the destination; for the CPU, ``values`` is returned.
    """
    return pinned(values, device).to(device, non_blocking=True)


def delivered(values: torch.Tensor, there: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Copy to memory of the device that stays, as :func:`sent` copies to new memory.

    Args:
        values: on the host.
        there: memory of the device for as many values, written and returned; None: new memory.
        device: the destination; for the CPU, ``values`` is returned.
    """
    if there is None:
        with torch.inference_mode(False):  # the engine may call inside and outside of this mode
            return sent(values, device)
    if there is not values:
        there.copy_(pinned(values, device), non_blocking=True)
    return there


PAGES = 4
"""Copies of an :class:`Outbox` that may be in flight."""


class Outbox:
    """Numbers that go to the same memory of the device in every step, by one copy without new memory.

    Args:
        slots: number of slots, nobody's included.
        rows: of the batch.
        device: where they go; on a CPU it is the host's own memory.

    Attributes:
        by_slot: int64 ``[slots]`` on the device, sent when it changes.
        by_row: int64 ``[rows]``, likewise.
        first, second: int64 ``[rows]``, sent in every step.
    """

    def __init__(self, slots: int, rows: int, device: torch.device) -> None:
        cuda = device.type == "cuda"
        # Each part begins at a multiple of 16 bytes, for which the kernels are compiled.
        parts = tuple(number + number % 2 for number in (slots, rows, rows, rows))
        with torch.inference_mode(False):  # the engine may call inside and outside of this mode
            there = torch.zeros(sum(parts), dtype=torch.int64, device=device)
            pages = [there]
            if device.type != "cpu":
                pages = [torch.zeros(sum(parts), dtype=torch.int64, pin_memory=cuda) for _ in range(PAGES)]
        starts, sizes = (0, *accumulate(parts)), (slots, rows, rows, rows)
        self.by_slot, self.by_row, self.first, self.second = (
            there[start : start + size] for start, size in zip(starts, sizes, strict=False)
        )
        seldom = starts[2]
        self._parts = [(page, there) for page in pages], [(page[seldom:], there[seldom:]) for page in pages]
        whole: Any = ctypes.c_int64 * sum(parts)
        self._memory = [whole.from_address(page.data_ptr()) for page in pages]
        event: Any = torch.cuda.Event
        self._copied = [event() for _ in pages] if cuda else []
        self._pack_seldom = struct.Struct(f"={8 * parts[0]}s{8 * rows}s").pack_into
        self._start, self._pack = 8 * seldom, struct.Struct(f"={8 * parts[2]}s{rows}q").pack_into
        self._number = 0

    def send(self, first: bytes, second: Sequence[int], seldom: tuple[bytes, bytes] | None = None) -> None:
        """Send rows of numbers, the first as its bytes. Waits only for the copy that was made :data:`PAGES` steps ago.

        Args:
            seldom: bytes of :attr:`by_slot` and of :attr:`by_row`, if they have changed.
        """
        number = self._number = (self._number + 1) % len(self._memory)
        if self._copied:
            self._copied[number].synchronize()
        memory = self._memory[number]
        if seldom is not None:
            self._pack_seldom(memory, 0, *seldom)
        self._pack(memory, self._start, first, *second)  # faster than numpy, which looks at each number twice
        page, there = self._parts[seldom is None][number]
        if len(self._memory) > 1:
            there.copy_(page, non_blocking=True)
            if self._copied:
                self._copied[number].record()
