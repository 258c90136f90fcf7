"""Defects that LP810 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from zoo.correct.v2 import V2MinP
from zoo.registry import defect, sound

CASE = {"extra_args": {"floor": 0.15}}


class Staged(V2MinP):
    """Sends all floors again in each step, from alternating buffers."""

    BUFFERS: ClassVar[int] = 1

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        pin = req_states.device.type == "cuda"
        self.turn = 0
        self.buffers = [
            torch.zeros(req_states.max_num_reqs, pin_memory=pin) for _ in range(self.buffers_for(vllm_config))
        ]

    def buffers_for(self, vllm_config: Any) -> int:
        return self.BUFFERS

    def fill(self) -> torch.Tensor:
        self.turn = (self.turn + 1) % len(self.buffers)
        buffer = self.buffers[self.turn]
        torch.mul(self.temperature, self.values.log(), out=buffer)
        return buffer

    def apply_staged_writes(self) -> None:
        self.log_floor.copy_(self.fill(), non_blocking=True)


@defect("LP810", "one pinned buffer for all steps", case=CASE)
class OneBuffer(Staged): ...


@defect("LP810", "two buffers, also where three steps are in flight", case=CASE)
class TwoBuffers(Staged):
    BUFFERS = 2


@defect("LP810", "a ring that goes round twice in a step", case=CASE)
class TurnsTwice(Staged):
    BUFFERS = 4

    def apply_staged_writes(self) -> None:
        self.fill()
        super().apply_staged_writes()


@defect("LP810", "writes requests into pinned memory, which each step sends", case=CASE)
class WritesIntoPinned(V2MinP):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        if req_states.device.type == "cuda":
            self.values = self.values.pin_memory()
        self.floors = torch.zeros_like(self.log_floor)

    def apply_staged_writes(self) -> None:
        self.floors = self.values.to(self.device, non_blocking=True)
        self.log_floor.copy_(self.temperature.to(self.device) * self.floors.log())


@defect("LP810", "waits for the event of another copy", case=CASE)
class WaitsTooEarly(Staged):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.event = torch.cuda.Event() if req_states.device.type == "cuda" else None

    def apply_staged_writes(self) -> None:
        if self.event is not None:
            self.event.synchronize()
            self.event.record()
        super().apply_staged_writes()


@sound("as many buffers as steps are in flight", case=CASE)
class Ring(Staged):
    def buffers_for(self, vllm_config: Any) -> int:
        return max(2, int(vllm_config.max_concurrent_batches))


@sound("a new pinned tensor in each step", case=CASE)
class StagesAnew(Staged):
    def fill(self) -> torch.Tensor:
        floors = self.temperature * self.values.log()
        return floors.pin_memory() if self.buffers[0].is_pinned() else floors


@sound("one pinned buffer, and an event to wait for before it is written to", case=CASE)
class WaitsForItsCopy(WaitsTooEarly):
    def apply_staged_writes(self) -> None:
        if self.event is None:
            super().apply_staged_writes()
            return
        self.event.synchronize()
        self.log_floor.copy_(self.fill(), non_blocking=True)
        self.event.record()


@sound("one buffer that is not pinned: its bytes are taken at once", case=CASE)
class NotPinned(Staged):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.buffers = [torch.zeros(req_states.max_num_reqs)]


@sound("writes what has changed into pinned memory that it never sends", case=CASE)
class KeepsPinned(Staged):
    def apply_staged_writes(self) -> None:
        self.log_floor.copy_(self.fill().clone(), non_blocking=True)
