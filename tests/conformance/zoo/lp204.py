"""Defects that LP204 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.bases import Clean
from zoo.correct.v1 import SWAP, ByHand
from zoo.correct.v1_history import History
from zoo.registry import defect


@defect("LP204", "a one-way move copies: the source keeps its entry, which shows when the row is used again")
class MoveCopies(Clean):
    def move(self, source: int, target: int) -> None:
        self.place(target, self.rows.get(source))


@defect("LP204", "carries out the last one-way move of an update only")
class LastMoveOnly(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        one_way = [(source, target) for source, target, kind in update.moved if kind is not SWAP]
        for source, target in one_way[-1:]:
            self.move(source, target)
        for source, target in one_way[:-1]:
            self.rows.pop(source, None)
            self.rows.pop(target, None)
        for first, second, kind in update.moved:
            if kind is SWAP:
                self.swap(first, second)


class Counted:
    """Weights and live output lists by row."""

    def __init__(self) -> None:
        self.weights: dict[int, float] = {}
        self.outputs: dict[int, list[int]] = {}

    def forget(self, row: int) -> None:
        self.weights.pop(row, None)
        self.outputs.pop(row, None)


@defect("LP204", "an object of its own keeps two tables, and one of them moves", cause="`self.counted.outputs[0]` is")
class MovesOneOfTwo(ByHand):
    CASE = {"extra_args": {"weight": 1.5}}
    read = History.read

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counted = Counted()

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.counted.forget(row)
        for row, params, _, outputs in batch_update.added:
            self.counted.forget(row)
            if (weight := self.read(params)) is not None:
                self.counted.weights[row], self.counted.outputs[row] = weight, outputs
        process_dict_updates(
            self.counted.weights, BatchUpdate(batch_update.batch_size, [], [], batch_update.moved), None
        )

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, weight in self.counted.weights.items():
            logits[row, 3 + len(self.counted.outputs.get(row, ())) % 12] += weight
        return logits
