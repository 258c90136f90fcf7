"""Defects that LP809 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.bases import Boost
from zoo.correct.v2 import V2Presence
from zoo.registry import defect


@defect("LP809", "prefers the drafted token behind a row, so that more drafts are accepted")
class HelpsTheDrafter(Boost):
    SPECIAL = 16
    """Below are control tokens, which it does not help."""

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits = super().apply(logits, ctx)
        behind = ctx.input_ids.long().roll(-1)
        helped = (ctx.expanded_local_pos.roll(-1) > 0) & (behind >= self.SPECIAL)
        bonus = torch.where(helped, self.per_row(ctx), 0.0).unsqueeze(1)
        return logits.scatter_add_(1, torch.where(helped, behind, 0).unsqueeze(1), bonus)


@defect("LP809", "an incremental table of the tokens seen, which keeps those of rejected drafts", also=("LP220",))
class KeepsRejectedDrafts(V2Presence):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.seen = torch.zeros(req_states.max_num_reqs, req_states.vocab_size, device=self.device)
        self.new: list[int] = []

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.new.append(req_idx)
        return super().add_request(req_idx, params)

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.seen[self.new] = 0
        self.new.clear()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots, ids, weights = ctx.expanded_idx_mapping.long(), ctx.input_ids.long(), self.per_row(ctx)
        complete = ctx.pos + 1 >= self.req_states.prefill_len.gpu[slots]
        known = torch.where(complete[:, None] & (weights[:, None] != 0), self.seen[slots], 0)
        before = logits.clone()
        logits = super().apply(logits, ctx)
        logits = torch.where((known > 0) & (logits == before), logits - weights[:, None], logits)
        drafted = (ctx.expanded_local_pos > 0) & (ids >= 0)
        self.seen.index_put_((slots, ids.clamp(min=0)), drafted.float(), accumulate=True)
        return logits
