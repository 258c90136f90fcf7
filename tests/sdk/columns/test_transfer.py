"""A copy to the device is not waited for, and leaves from memory of its own where the device reads it later."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.columns.transfer import Outbox, delivered, sent


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


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_an_outbox_sends_what_changes_seldom_only_when_it_is_given(rows: int) -> None:
    box = Outbox(7, rows, torch.device("cpu"))
    seldom = torch.arange(7).numpy().tobytes(), torch.arange(rows).add(50).numpy().tobytes()
    for step, given in enumerate((seldom, None)):
        first = torch.arange(rows).add(100 * step)
        box.send(first.numpy().tobytes(), range(9, 9 + rows), given)
        assert torch.equal(box.first, first) and box.second.tolist() == [*range(9, 9 + rows)]
        assert box.by_slot.tolist() == [*range(7)] and box.by_row.tolist() == [*range(50, 50 + rows)]
    starts = {part.data_ptr() - box.by_slot.data_ptr() for part in (box.by_row, box.first, box.second)}
    assert {start % 16 for start in starts} == {0}, "kernels are compiled for multiples of 16 bytes"


def test_what_is_delivered_stays_where_it_is() -> None:
    device = torch.device("meta")
    there = delivered(torch.arange(3), None, device)
    assert delivered(torch.arange(3), there, device) is there and there.device == device
    values = torch.arange(3)
    assert delivered(values, delivered(values, None, values.device), values.device) is values
