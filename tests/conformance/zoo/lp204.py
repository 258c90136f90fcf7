"""Defects that LP204 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.bases import Boost, Clean
from zoo.correct.v1 import SWAP, ByHand, RaisesOrLowers, V1Base
from zoo.correct.v1_history import History
from zoo.registry import defect


@defect(
    "LP204",
    "a one-way move copies: the source keeps its entry, which shows when the row is used again",
    line=".get(source)",
    fix="rows.pop(source",
)
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


@defect(
    "LP204",
    "an object of its own keeps two tables, and one of them moves",
    cause="r0's `self.counted.outputs[0]`",
    also=("LP205", "LP213"),
)
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


@defect(
    "LP204",
    "rows are packed again after additions and removals, but not after moves",
    line="if changed:",
    cause="r1 moves from row 1 to row 0, and nothing writes `self.packed`, because `if changed` does not hold",
)
class PackedOnChange(ByHand):
    packed: tuple[list[int], list[Any]] = ([], [])

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        changed = batch_update is not None and (batch_update.added or batch_update.removed)
        if changed:
            self.packed = list(self.rows), list(self.rows.values())

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (token, bias) in zip(*self.packed, strict=True):
            if row < len(logits):
                logits[row, token] += bias
        return logits


@defect(
    "LP204",
    "drops the rows behind the batch before it moves them",
    line="del self.rows[row]",
    cause="removes `self.rows[1]` in step 2, and nothing stores it for row 0",
)
class TrimsBeforeItMoves(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for row in [row for row in self.rows if row >= update.batch_size]:
            del self.rows[row]
        super().moves(update)


@defect(
    "LP204",
    "a row's object is kept by both rows and filled again",
    line="self.rows[target] = self.rows[source]",
    cause="rows 0 and 1 share it",
)
class MovesTheObject(ByHand):
    def place(self, row: int, state: Any) -> None:
        self.rows.setdefault(row, [None, 0.0])[:] = state or (None, 0.0)

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.place(row, None)

    def move(self, source: int, target: int) -> None:
        self.rows[target] = self.rows[source]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (token, bias) in self.rows.items():
            if token is not None and row < len(logits):
                logits[row, token] += bias
        return logits


@defect(
    "LP204",
    "packs its rows before they move",
    line="if update.added",
    state="self.packed",
    advice="derived",
    also=("LP205",),
)
class PacksBeforeMoves(ByHand):
    packed = torch.zeros(0, dtype=torch.int64)

    def removals(self, update: BatchUpdate) -> None:
        super().removals(update)
        if update.added or update.removed:
            self.pack()

    def pack(self) -> None:
        self.packed = torch.tensor([*self.rows], dtype=torch.int64, device=self.device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits[self.packed, 5] += 1.5
        return logits


@defect("LP204", "reads a row's last tokens as one text with those of other slots", advice="outside", name="OneText")
class V2OneText(Boost):
    LAST = 12

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots, texts = ctx.expanded_idx_mapping.long(), self.req_states.all_token_ids.gpu
        last = slots * texts.shape[1] + ctx.pos
        ids = texts.reshape(-1)[(last.unsqueeze(1) - torch.arange(self.LAST, device=last.device)).clamp(min=0)].long()
        said = torch.zeros_like(logits).scatter_(1, ids, 1.0)
        return logits - said * self.per_row(ctx).unsqueeze(1)


@defect(
    "LP204", "tensors made for arrivals only", line="if batch_update and", state="self.index", cause="do not belong to"
)
class BuiltForArrivals(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.index = torch.zeros(0, dtype=torch.int64)
        self.by = torch.zeros(0)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        if batch_update and batch_update.added:
            self.index = torch.tensor([*self.rows], dtype=torch.int64, device=self.device)
            self.by = torch.tensor([*self.rows.values()], device=self.device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        inside = self.index < len(logits)
        logits[self.index[inside], 5] += self.by[inside]
        return logits


@defect("LP204", "lists by row stay where they are, and the constructor made one of them", cause="nothing writes")
class ListsThatStay(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ids: list[list[int]] = [[]] * self.max_num_seqs

    def place(self, row: int, state: Any) -> None:
        super().place(row, state)
        self.ids[row] = [] if state is None else [state[0]]

    def move(self, source: int, target: int) -> None:
        super().place(target, self.rows.pop(source, None))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in self.rows.items():
            for where in self.ids[row]:
                logits[row, where] += bias
        return logits


@defect("LP204", "a one-way move loses the state of a row that lowers its token")
class MovesOneMode(RaisesOrLowers):
    def move(self, source: int, target: int) -> None:
        super().move(source, target)
        if self.lowers(self.rows.get(target)):
            del self.rows[target]
