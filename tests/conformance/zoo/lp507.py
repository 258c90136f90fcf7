"""Defects that LP507 must catch."""

from __future__ import annotations

import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.correct.v1 import ByHand
from zoo.correct.v2 import V2Presence
from zoo.registry import defect


@defect("LP507", "takes the removed rows out of the update, one by one", line="update.removed.pop()")
class PopsRemoved(ByHand):
    def removals(self, update: BatchUpdate) -> None:
        while update.removed:
            self.rows.pop(update.removed.pop(), None)  # type: ignore[attr-defined]


@defect("LP507", "sorts the additions of the update by row")
class SortsAdditions(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        update.added.sort(key=lambda item: -item[0])  # type: ignore[attr-defined]
        super().additions(update)


@defect("LP507", "clears what is behind the end of each row in the engine's token buffer")
class ClearsTail(V2Presence):
    def history(self, ctx: v2.LogitsContext) -> torch.Tensor:
        buffer, slots = self.req_states.all_token_ids.gpu, ctx.expanded_idx_mapping.long()
        for slot, length in zip(slots.tolist(), self.req_states.total_len.gpu[slots].tolist(), strict=True):
            buffer[slot, length:] = -1
        return super().history(ctx)
