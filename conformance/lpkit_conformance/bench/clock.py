"""Times calls on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

AHEAD = 4_000_000
"""Cycles that a GPU sleeps while the host runs ahead: about two milliseconds."""


class Clock:
    """Seconds on the host, with a wait for the device at both ends; and seconds of a GPU's own work."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._wait: Callable[[], Any] = torch.cuda.synchronize if self._on_gpu else lambda: None

    def time(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Return the seconds until the result is there, and until the call returned."""
        self._wait()
        begun = time.perf_counter()
        call()
        back = time.perf_counter()
        self._wait()
        return time.perf_counter() - begun, back - begun

    def on_gpu(self, call: Callable[[], Any]) -> float | None:
        """GPU time of a call while the host runs ahead, as during a forward pass; None on other devices."""
        if not self._on_gpu:
            return None
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(AHEAD)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        self._wait()
        return float(begin.elapsed_time(end)) / 1e3
