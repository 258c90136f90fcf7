"""Times calls on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


class Clock:
    """Seconds on the host, waiting for a device at both ends."""

    def __init__(self, device: torch.device) -> None:
        self._wait: Callable[[], Any] = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def time(self, call: Callable[[], Any]) -> tuple[float, float]:
        """(until the result is there, until the call came back)."""
        self._wait()
        begun = time.perf_counter()
        call()
        back = time.perf_counter()
        self._wait()
        return time.perf_counter() - begun, back - begun
