"""LP810: a device that is steps behind, and what stages for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import zoo
from lpkit.columns.memory import Arena
from lpkit_conformance.instruments.in_flight import DEVICE, InFlight
from lpkit_conformance.results import CheckResult
from lpkit_conformance.testing import compute_check

OWN = {item.name: item for item in (*zoo.CORRECT, *zoo.DEFECTS)}


def judged(name: str) -> CheckResult:
    return compute_check("LP810", OWN[name].target, case=OWN[name].case)


def test_the_librarys_own_staging_is_copied_in_flight_and_never_too_early() -> None:
    result = judged("PortableMinP")
    assert result.status == "passed"
    assert int(result.message.split()[0]) > 0


def test_one_block_for_all_steps_in_the_library_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: Any) -> None:
        if self._moved:
            self._find()
            self.block = torch.empty_like(self._host, pin_memory=True)
        self.block.copy_(self._host)
        self._values.copy_(self.block, non_blocking=True)

    monkeypatch.setattr(Arena, "_send", send)
    result = judged("PortableMinP")
    assert result.status == "failed"


@pytest.mark.parametrize(("name", "steps"), [("OneBuffer", "2 "), ("TwoBuffers", "3 ")])
def test_the_fewest_steps_in_flight_that_show_it_are_reported(name: str, steps: str) -> None:
    finding = judged(name).finding
    assert finding is not None
    assert finding.where["steps in flight"].startswith(steps)
    assert "lp810.py:" in finding.location


def run(depth: int, steps: int, earlier: Any = ()) -> tuple[InFlight, list[float]]:
    """A buffer that each step overwrites; what the device got of it."""
    flight = InFlight(depth, earlier)
    with flight:
        buffer, device = torch.zeros(1, pin_memory=True), torch.zeros(1, device=DEVICE)
    got = []
    for step in range(1, steps + 1):
        flight.begin(step)
        with flight:
            buffer.fill_(step)
            device.copy_(buffer, non_blocking=True)
        got.append(device.tolist()[0])
    return flight, got


@pytest.mark.parametrize(("depth", "late"), [(1, [1, 2, 3, 4, 5]), (2, [2, 3, 4, 4, 5]), (3, [3, 4, 3, 4, 5])])
def test_a_copy_takes_what_is_there_so_many_steps_later(depth: int, late: list[int]) -> None:
    flight, prompt = run(depth, 5)
    assert prompt == [1, 2, 3, 4, 5]
    _, got = run(depth, 5, flight.copies)
    assert got == late


def test_pageable_memory_is_read_at_once_and_a_wait_ends_the_flight() -> None:
    flight = InFlight(3)
    with flight.events(), flight:
        device = torch.zeros(1, device=DEVICE)
        device.copy_(torch.ones(1), non_blocking=True)
        assert not flight.copies
        pinned = torch.ones(1).pin_memory()
        device.copy_(pinned, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        pinned.zero_()
    (copy,) = flight.copies
    assert not copy.overwritten


def test_what_moves_to_the_device_shares_no_memory_with_the_host() -> None:
    with InFlight(2):
        host = torch.zeros(2)
        there = host.to(DEVICE)
        host.fill_(1)
        assert there.tolist() == [0, 0]
        assert torch.zeros(2, device="cuda:0").device.type == "cpu"
