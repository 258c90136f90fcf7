"""Defects that LP219 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.bases import Boost
from zoo.correct.v1 import SWAP, ByHand
from zoo.correct.v1_odd import FIRST, SECOND, TwoKinds
from zoo.registry import defect


@defect(
    "LP219",
    "carries out the first three swaps of an update for the second case",
    case=FIRST,
    others=[SECOND],
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


@defect("LP219", "forgets a row whose request is removed and another added while a swap is in the same update")
class ThreeAtOnce(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        if batch_update is not None:
            kinds = {kind for *_, kind in batch_update.moved}
            if len(kinds) == 2 and len(batch_update.added) > 0 and batch_update.removed:
                self.rows.pop(batch_update.added[-1][0], None)


@defect("LP219", "carries out the first three swaps of an update")
class ThreeSwaps(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        one_way = [move for move in update.moved if move[2] is not SWAP]
        swaps = [move for move in update.moved if move[2] is SWAP]
        for source, target, _ in one_way:
            self.move(source, target)
        for first, second, _ in swaps[:3]:
            self.swap(first, second)


@defect("LP219", "a slot given away twice in a row to requests that decline is taken for dead")
class ThirdOccupant(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.declined = [0] * req_states.max_num_reqs

    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = super().add_request(req_idx, params)
        if wanted and self.declined[req_idx] >= 2:
            self.values[req_idx] = 0.0
            self.declined[req_idx] = 0
        self.declined[req_idx] = 0 if wanted else self.declined[req_idx] + 1
        return wanted


@defect(
    "LP219",
    "a partial prefill in the first row ends the step for all rows",
    line="if self.unfinished(ctx)",
    cause="the line ends the call for the whole batch because of another row",
)
class WaitsForTheFirstRow(Boost):
    def unfinished(self, ctx: v2.LogitsContext) -> bool:
        slot = int(ctx.idx_mapping_np[0])
        return int(ctx.pos[0]) + 1 < int(self.req_states.prefill_len.np[slot])

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if self.unfinished(ctx):
            return logits
        return super().apply(logits, ctx)
