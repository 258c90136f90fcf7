"""Processors with two kinds of requests, and a case for each; lpkit shares the long programs out among the cases."""

from __future__ import annotations

from typing import Any

from lpkit.v1 import BatchUpdate

from zoo.arguments import number, token
from zoo.registry import defect, sound
from zoo.v1_correct import SWAP, ByHand

FIRST = {"extra_args": {"bias": 2.5, "token": 7}}
SECOND = {"extra_args": {"malus": 2.5, "of": 9}}


@sound("adds for one kind of requests, and subtracts for the other", "v1", case=FIRST, others=[SECOND])
class TwoKinds(ByHand):
    @classmethod
    def read(cls, params: Any) -> Any:
        malus, where = number(params, "malus"), token(params, "of")
        return super().read(params) if malus is None or where is None else (where, -malus)

    def second(self, row: int) -> bool:
        """Whether a request of the second kind is there."""
        return row in self.rows and self.rows[row][1] < 0


@defect(
    "LP219",
    "carries out the first three swaps of an update for the second case",
    case=FIRST,
    others=[SECOND],
    style="v1",
)
class SecondCaseThreeSwaps(TwoKinds):
    def moves(self, update: BatchUpdate) -> None:
        swaps = 0
        for source, target, kind in update.moved:
            swaps += kind is SWAP
            if kind is not SWAP:
                self.move(source, target)
            elif swaps <= 3 or not (self.second(source) or self.second(target)):
                self.swap(source, target)


@defect("LP220", "packs rows of swaps of the second case into three bits each", case=FIRST, others=[SECOND], style="v1")
class SecondCaseSmallSwaps(TwoKinds):
    def swap(self, first: int, second: int) -> None:
        if self.second(first) or self.second(second):
            first, second = first % 8, second % 8
        super().swap(first, second)
