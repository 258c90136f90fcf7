"""Defects that LP220 must catch."""

from __future__ import annotations

import torch
from lpkit.v1 import BatchUpdate

from zoo.correct.v1 import ByHand
from zoo.correct.v1_history import History
from zoo.correct.v1_odd import FIRST, SECOND, TwoKinds
from zoo.lp211 import ResumesInItsRow
from zoo.registry import defect


@defect("LP220", "packs rows of swaps of the second case into three bits each", case=FIRST, others=[SECOND])
class SecondCaseSmallSwaps(TwoKinds):
    def swap(self, first: int, second: int) -> None:
        if self.second(first) or self.second(second):
            first, second = first % 8, second % 8
        super().swap(first, second)


@defect("LP220", "reads all lists again when a request comes back, those of others too, whose newest token may be -1")
class ReadsAllOnResume(History):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        resumed = batch_update is not None and any(outputs for *_, outputs in batch_update.added)
        for state in self.rows.values():
            if resumed or len(state) == 2:
                state[2:] = [list(state[1])]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, read) in self.rows.items():
            read += outputs[len(read) :]
            if known := sorted(token for token in set(read) if token >= 0):
                logits[row, torch.tensor(known)] -= weight
        return logits


@defect("LP220", "packs the two rows of a swap into three bits each, as if no batch had more than eight rows")
class SmallSwaps(ByHand):
    def swap(self, first: int, second: int) -> None:
        packed = (first % 8) << 3 | second % 8
        super().swap(packed >> 3, packed % 8)


@defect("LP220", "puts a request that comes back into another row, too", cause="or this row in place of another one")
class ResumesInTwoRows(ResumesInItsRow):
    def additions(self, update: BatchUpdate) -> None:
        before = self.last
        super().additions(update)
        for row, _, _, outputs in update.added:
            if outputs and row in self.rows:
                self.rows.setdefault(before, self.rows[row])
