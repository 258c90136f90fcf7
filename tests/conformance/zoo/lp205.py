"""Defects that LP205 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.correct.v1 import SWAP, ByHand, DenseMinP, RaisesOrLowers
from zoo.registry import defect


@defect(
    "LP205",
    "a swap with a disabled second row is done, with a disabled first row it is not",
    cause="nothing stores",
    fix="do it without the condition `if first in self.rows`",
    line="if first in self.rows:",
)
class SwapOneSided(ByHand):
    def swap(self, first: int, second: int) -> None:
        if first in self.rows:
            super().swap(first, second)


@defect(
    "LP205",
    "`a, b = b, a` on views of one tensor: both rows end up equal",
    line="self.values[first], self.values[second] =",
    cause="`self.values[first]` itself, or a view of it",
)
class AliasedSwap(DenseMinP):
    CASE = {"extra_args": {"dense_min_p": 0.2}}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None or not any(kind is SWAP for *_, kind in batch_update.moved):
            super().update_state(batch_update)
            return
        super().update_state(
            BatchUpdate(
                batch_update.batch_size,
                batch_update.removed,
                batch_update.added,
                [move for move in batch_update.moved if move[2] is not SWAP],
            )
        )
        for first, second, kind in batch_update.moved:
            if kind is SWAP:
                self.exchange(first, second)

    def exchange(self, first: int, second: int) -> None:
        self.values[first], self.values[second] = self.values[second], self.values[first]


@defect(
    "LP205",
    "a swap keeps a view of the one row",
    line="held = self.values[first]",
    cause="`self.values[first]` itself, or a view of it",
)
class HeldView(AliasedSwap):
    def exchange(self, first: int, second: int) -> None:
        held = self.values[first]
        self.values[first] = self.values[second]
        self.values[second] = held


@defect(
    "LP205",
    "takes a swap for a one-way move when the rows are next to each other",
    cause="before what was there is stored for row",
)
class SwapOfNeighbours(ByHand):
    def swap(self, first: int, second: int) -> None:
        if abs(first - second) == 1:
            self.move(first, second)
        else:
            super().swap(first, second)


@defect(
    "LP205", "of two tables a swap exchanges one", cause="nothing stores `self.outputs[1]`", state="self.outputs[0]"
)
class SwapsOneTable(ByHand):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.outputs: dict[int, list[int]] = {}

    def additions(self, update: BatchUpdate) -> None:
        super().additions(update)
        self.outputs.update((row, outputs) for row, _, _, outputs in update.added)

    def move(self, source: int, target: int) -> None:
        super().move(source, target)
        self.outputs[target] = self.outputs.pop(source)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) + self.late(len(logits)).to(logits)

    def late(self, rows: int) -> torch.Tensor:
        return torch.tensor([[float(row in self.rows and len(self.outputs[row]) > 1)] for row in range(rows)])


@defect("LP205", "a swap loses the state of a row that lowers its token")
class SwapLosesOneMode(RaisesOrLowers):
    def swap(self, first: int, second: int) -> None:
        super().swap(first, second)
        for row in (first, second):
            if self.lowers(self.rows.get(row)):
                del self.rows[row]


@defect(
    "LP205",
    "a swap loses the state of a row with the flag 1",
    case={"extra_args": {"bias": 2.5, "token": 7, "mode": 0}},
)
class SwapLosesFlag(SwapLosesOneMode):
    MODES = (0, 1)
