"""A copy to the device is not waited for, and leaves from memory of its own where the device reads it later."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.columns.transfer import sent


class Values:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pin_memory(self) -> Values:
        self.asked.append("pin_memory")
        return self

    def to(self, device: torch.device, non_blocking: bool) -> Any:
        self.asked.append(f"to {device.type}, {non_blocking=}")
        return self


@pytest.mark.parametrize(("device", "pinned"), [("cuda", ["pin_memory"]), ("meta", [])])
def test_only_a_gpu_needs_pinned_memory_and_nothing_waits(device: str, pinned: list[str]) -> None:
    values = Values()
    sent(values, torch.device(device))  # type: ignore[arg-type]
    assert values.asked == [*pinned, f"to {device}, non_blocking=True"]


def test_on_the_host_they_come_back_as_they_are() -> None:
    values = torch.arange(3)
    assert sent(values, torch.device("cpu")) is values
