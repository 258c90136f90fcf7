"""Defects that LP213 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.bases import Counter
from zoo.correct.v1 import ByHand
from zoo.registry import defect


@defect("LP213", "additions wait for the next apply; those of a step without tokens are overwritten")
class StagedOnce(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.staged: dict[int, Any] = {}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.staged = {}
        super().update_state(batch_update)

    def place(self, row: int, state: Any) -> None:
        self.rows.pop(row, None)
        self.staged.pop(row, None)
        if state is not None:
            self.staged[row] = state

    def move(self, source: int, target: int) -> None:
        self.place(target, self.take(source))

    def swap(self, first: int, second: int) -> None:
        one, other = self.take(first), self.take(second)
        self.place(first, other)
        self.place(second, one)

    def take(self, row: int) -> Any:
        self.rows.update({row: self.staged.pop(row)} if row in self.staged else {})
        return self.rows.pop(row, None)

    def removals(self, update: BatchUpdate) -> None:
        super().removals(update)
        for row in update.removed:
            self.staged.pop(row, None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.rows.update(self.staged)
        self.staged = {}
        return super().apply(logits)


@defect("LP213", "advances every counter in apply_staged_writes", cause="each call of `apply_staged_writes`: it counts")
class CountsFlushes(Counter):
    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = super().add_request(req_idx, params)
        self.count[req_idx] -= 1
        return wanted

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.count += 1


class Begun:
    """Arguments and live output list of a request; without tokens it is false."""

    def __init__(self, where: int, bias: float, outputs: list[int]) -> None:
        self.where, self.bias, self.outputs = where, bias, outputs

    def __len__(self) -> int:
        return len(self.outputs)


@defect(
    "LP213",
    "a one-way move drops an entry without tokens, which is false",
    line="if entry:",
    cause="with `entry is not None` in its place, the programs of this check pass",
)
class DropsWhatHasNotBegun(ByHand):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return None if state is None else Begun(*state, outputs)

    def move(self, source: int, target: int) -> None:
        entry = self.rows.pop(source, None)
        self.rows.pop(target, None)
        if entry:
            self.rows[target] = entry

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, entry in self.rows.items():
            logits[row, entry.where] += entry.bias
        return logits


@defect("LP213", "notes a count of updates with the arguments", state="self.ticks", cause="it counts calls, not tokens")
class CountsUpdates(ByHand):
    ticks = 0

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.ticks += 1
        super().update_state(batch_update)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and (*state, self.ticks)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, since) in self.rows.items():
            logits[row, where] += bias * min(self.ticks - since, 5)
        return logits
