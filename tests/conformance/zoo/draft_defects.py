"""V2 processors that are wrong only with a real drafter, adaptive verification or batch-sharded sampling."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.registry import defect, sound
from zoo.v2_correct import V2Base, V2Presence
from zoo.v2_defects import Boost, ByLength


@defect("LP809", "a table of four rows per request: with more drafts the last rows stay as they are", style="v2")
class FourRowsEach(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return torch.where(ctx.expanded_local_pos > 3, 0.0, super().per_row(ctx))


@defect("LP220", "a buffer with room for one draft of each request, as multi-token prediction has", style="v2")
class RoomForOneDraft(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.room = torch.zeros(2 * req_states.max_num_reqs, device=self.device)

    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        found = super().per_row(ctx)
        return self.room[: len(found)].copy_(found)


@defect("LP809", "prefers the drafted token behind a row, so that more drafts are accepted", style="v2")
class HelpsTheDrafter(Boost):
    SPECIAL = 16
    """Below are control tokens, which it does not help."""

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits = super().apply(logits, ctx)
        behind = ctx.input_ids.long().roll(-1)
        helped = (ctx.expanded_local_pos.roll(-1) > 0) & (behind >= self.SPECIAL)
        bonus = torch.where(helped, self.per_row(ctx), 0.0).unsqueeze(1)
        return logits.scatter_add_(1, torch.where(helped, behind, 0).unsqueeze(1), bonus)


@defect("LP809", "an incremental table of the tokens seen, which keeps those of rejected drafts", style="v2")
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


@defect(
    "LP804",
    "as many rows per request as the host bounds have room for: adaptive verification leaves some out",
    style="v2",
)
class BoundsTellRows(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        bounds = torch.from_numpy(ctx.seq_lens_upper_bound_np[: len(ctx.idx_mapping_np)]).to(self.device)
        slots = ctx.idx_mapping.long()
        rows = (bounds - self.req_states.total_len.gpu[slots]).clamp(min=1)
        values = self.on_device[slots].repeat_interleave(rows)[: len(ctx.pos)]
        return torch.nn.functional.pad(values, (0, len(ctx.pos) - len(values)))


@sound("takes the host bounds for lengths in an engine that has no drafts", "v2")
class ExactWithoutDrafts(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.exact = vllm_config.speculative_config is None

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        if not self.exact:
            return super().outputs(ctx)
        bounds = torch.from_numpy(ctx.seq_lens_upper_bound_np[: len(ctx.pos)]).to(self.device)
        return bounds - self.req_states.prompt_len.gpu[ctx.idx_mapping.long()]


@defect("LP804", "takes them for lengths in a call without drafts: rejected ones of the step before count", style="v2")
class ExactInCallsWithoutDrafts(ExactWithoutDrafts):
    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        self.exact = len(ctx.pos) == len(ctx.idx_mapping_np)
        return super().outputs(ctx)


@sound("refuses drafts in its constructor", "v2")
class NoDrafts(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        if vllm_config.speculative_config is not None:
            raise ValueError(f"drafts ({vllm_config.speculative_config.method}) are not supported")
        super().__init__(vllm_config, req_states)


@defect("LP803", "stages one request per slot until the next apply, which a rank without rows does not get", style="v2")
class StagesUntilApply(V2Base):
    CASE = Boost.CASE

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.staged = torch.zeros(req_states.max_num_reqs, 2)
        self.count = 0

    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        self.staged[self.count] = torch.tensor([req_idx, value or 0.0])
        self.count += 1
        return bool(value)

    def apply_staged_writes(self) -> None:
        """Nothing: most steps have no new request."""

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for slot, value in self.staged[: self.count].tolist():
            self.on_device[int(slot)] = value
        self.count = 0
        logits[:, 5] += self.per_row(ctx)
        return logits
