"""V1 processors that lose track of the batch's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lpkit.v1 import BatchUpdate

from zoo.arguments import INF, number, token
from zoo.registry import defect
from zoo.v1_correct import SWAP, Bias, ByHand, DenseMinP


@defect("LP201", "looks its arguments up by order of arrival instead of by row")
class RowsByRank(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for (row, _), (_, (where, bias)) in zip(sorted(self.rows.items()), self.rows.items(), strict=True):
            logits[row, where] += bias if len(self.rows) < 3 else self.rows[min(self.rows)][1]
        return logits


@defect("LP201", "takes the maximum over the batch when three or more requests use it")
class BatchMaximum(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.used < 3:
            return super().apply(logits)
        floor = logits.amax() + self.values[: logits.shape[0]].log().unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@defect("LP201", "one entry per token: all requests that name it share it, and one with a bias writes to it")
class EntryPerToken(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.entries: dict[int, list[float]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias, where = number(params, "bias"), token(params, "token")
        if where is None:
            return None
        entry = self.entries.setdefault(where, [2.0])
        if bias is not None:
            entry[0] = bias
        return where, entry

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, entry) in self.rows.items():
            logits[row, where] += entry[0]
        return logits


@defect("LP202", "an Add without the plugin leaves the old occupant's entry, on odd rows only")
class StaleOnOddRows(ByHand):
    def place(self, row: int, state: Any) -> None:
        if state is not None or row % 2 == 0:
            super().place(row, state)


@defect("LP202", "an Add that is declined keeps the entry; the row was never in `removed`")
class StaleOnDecline(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state:
                self.rows[row] = state


@defect("LP202", "setdefault: the newcomer inherits the old arguments")
class SetDefault(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is None:
                self.rows.pop(row, None)
            else:
                self.rows.setdefault(row, state)


class Clean(ByHand):
    """Trusts that a row which nobody occupies is clean, and clears it only on the way out."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.occupied: set[int] = set()

    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is not None or row in self.occupied:
                self.place(row, state)
            self.occupied.add(row)

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.rows.pop(row, None)
            self.occupied.discard(row)

    def moves(self, update: BatchUpdate) -> None:
        super().moves(update)
        self.occupied = set(range(update.batch_size))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if row < logits.shape[0]:
                logits[row, where] += bias
        return logits


@defect("LP203", "forgets the first of the removed rows only")
class OneRemoval(Clean):
    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed[:1]:
            self.rows.pop(row, None)


@defect("LP203", "a removed row is kept for later, in case the request resumes")
class KeepsRemoved(Clean):
    def removals(self, update: BatchUpdate) -> None:
        self.occupied.difference_update(update.removed)


@defect("LP204", "a one-way move copies: the source keeps its entry, which shows when the row is used again")
class MoveCopies(Clean):
    def move(self, source: int, target: int) -> None:
        self.place(target, self.rows.get(source))


@defect("LP204", "a one-way move from a plain row leaves the destination's entry")
class PlainMoveIgnored(ByHand):
    def move(self, source: int, target: int) -> None:
        if source in self.rows:
            self.rows[target] = self.rows.pop(source)


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


@defect("LP205", "swaps only if both rows use the plugin")
class SwapNeedsBoth(ByHand):
    def swap(self, first: int, second: int) -> None:
        if first in self.rows and second in self.rows:
            super().swap(first, second)


@defect("LP205", "a swap with a disabled second row is done, with a disabled first row it is not")
class SwapOneSided(ByHand):
    def swap(self, first: int, second: int) -> None:
        if first in self.rows:
            super().swap(first, second)


@defect("LP205", "`a, b = b, a` on views of one tensor: both rows end up equal")
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
                self.values[first], self.values[second] = self.values[second], self.values[first]


@defect("LP205", "takes a swap for a one-way move when the rows are next to each other")
class SwapOfNeighbours(ByHand):
    def swap(self, first: int, second: int) -> None:
        if abs(first - second) == 1:
            self.move(first, second)
        else:
            super().swap(first, second)


@defect("LP206", "moves from a snapshot: a chain of swaps loses track")
class MovesFromSnapshot(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        before = dict(self.rows)
        for source, target, kind in update.moved:
            if kind is SWAP:
                self.place(source, before.get(target))
                self.place(target, before.get(source))
            else:
                self.move(source, target)


@defect("LP206", "swaps before one-way moves")
class SwapsFirst(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for first, second, kind in sorted(update.moved, key=lambda move: move[2] is not SWAP):
            (self.swap if kind is SWAP else self.move)(first, second)


@defect("LP206", "a dict of moves by source: the second move from a row replaces the first")
class MovesBySource(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for source, (target, kind) in {source: (target, kind) for source, target, kind in update.moved}.items():
            (self.swap if kind is SWAP else self.move)(source, target)


@defect("LP206", "additions after the moves, though their rows are those of before")
class AddsLast(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self.removals(batch_update)
            self.moves(batch_update)
            self.additions(batch_update)


@defect("LP207", "a buffer one row short: the last row of a full batch is left out")
class OneRowShort(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.used:
            return logits
        rows = min(logits.shape[0], max(self.max_num_seqs - 1, 1))
        floor = logits[:rows].amax(1) + self.values[:rows].log().to(logits.device)
        logits[:rows] = logits[:rows].masked_fill(logits[:rows] < floor.unsqueeze(1), -INF)
        return logits


@defect("LP208", "row numbers modulo 64")
class SixtyFourRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row & 63, where] += bias
        return logits


@defect("LP208", "works in blocks of 128 rows and drops the last row of each block")
class Blocks(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if row % 128 != 127:
                logits[row, where] += bias
        return logits


@defect("LP208", "keeps row numbers in bytes")
class ByteRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = np.array(list(self.rows), dtype=np.int64).astype(np.uint8)
        for row, (where, bias) in zip(rows.tolist(), self.rows.values(), strict=True):
            logits[row, where] += bias
        return logits


@defect("LP209", "mistakes an update for an empty batch for no update")
class EmptyIsNone(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None and batch_update.batch_size:
            super().update_state(batch_update)


@defect("LP301", "returns None when the last user has left the batch")
class ForgetsToReturn(Bias):
    was_busy = False

    def apply(self, logits: torch.Tensor) -> Any:
        if not self.rows and self.was_busy and logits.shape[0] == 1:
            return None
        self.was_busy = self.was_busy or bool(self.rows)
        return super().apply(logits)
