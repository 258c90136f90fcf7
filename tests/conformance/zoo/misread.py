"""Defects in what a step reads, or in what is kept where nobody looks."""

from __future__ import annotations

import time
from typing import Any

import lpkit
import torch
from lpkit import rng, v2

from zoo.arguments import INF, token
from zoo.registry import defect, sound
from zoo.v2_correct import V2Base


@sound("unlocks a token once another one stands in the text, which ends at each row's own position", "v2")
class UnlocksOnceWritten(v2.LogitsProcessor):
    CASE = {"extra_args": {"key_token": 40, "locked_token": 41}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        self.states = req_states
        self.host = torch.full((req_states.max_num_reqs, 2), -1)
        self.table = self.host.to(req_states.device)

    @classmethod
    def validate_params(cls, params: Any) -> None:
        token(params, "key_token")
        token(params, "locked_token")

    def add_request(self, req_idx: int, params: Any) -> bool:
        key, locked = token(params, "key_token"), token(params, "locked_token")
        used = key is not None and locked is not None
        self.host[req_idx] = torch.tensor([key, locked] if used else [-1, -1])
        return used

    def apply_staged_writes(self) -> None:
        self.table.copy_(self.host)

    def text(self, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        ids = self.states.all_token_ids.gpu[slots].long()
        places = torch.arange(ids.shape[1], device=ids.device)
        for row, local in enumerate(ctx.expanded_local_pos.tolist()):
            for back in range(local):
                ids[row, ctx.pos[row] - back] = ctx.input_ids[row - back]
        return torch.where(places <= ctx.pos.unsqueeze(1), ids, -1)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        key, locked = self.table[ctx.expanded_idx_mapping.long()].unbind(1)
        locked = torch.where((self.text(ctx) == key.unsqueeze(1)).any(1), -1, locked).unsqueeze(1)
        ids = locked.clamp(min=0)
        return logits.scatter_(1, ids, torch.where(locked < 0, logits.gather(1, ids), -INF))


@defect("LP202", "searches a slot's buffer to its end, where the text of an earlier request still stands", style="v2")
class BehindItsText(UnlocksOnceWritten):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        key, locked = self.table[slots].unbind(1)
        text = torch.where(
            ctx.expanded_local_pos.unsqueeze(1) > 0, self.text(ctx), self.states.all_token_ids.gpu[slots]
        )
        locked = torch.where((text == key.unsqueeze(1)).any(1), -1, locked).unsqueeze(1)
        ids = locked.clamp(min=0)
        return logits.scatter_(1, ids, torch.where(locked < 0, logits.gather(1, ids), -INF))


@defect("LP804", "takes the place of a request in the batch for a row", style="v2")
class RequestsForRows(V2Base):
    KEY, LOW, HIGH = "banned", 0.0, 500.0
    CASE = {"extra_args": {"banned": 8.0}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.idx_mapping_np.tolist()):
            if self.values[slot]:
                ids = [int(self.values[slot]), 5]
                logits[row, ids] = -INF
        return logits


class LowPart(V2Base):
    """Masks the ids from a number on, by a table of masks per slot."""

    KEY, LOW, HIGH = "low_top", 0.0, 500.0
    CASE = {"extra_args": {"low_top": 300.0}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.masks = torch.zeros(req_states.max_num_reqs, req_states.vocab_size, dtype=torch.bool)

    def apply_staged_writes(self) -> None:
        ids = torch.arange(self.masks.shape[1])
        self.masks = (self.values[:, None] > 0) & (ids >= self.values[:, None])


@sound("copies the rows' slots to the host, where its table is, and the masks back", "v2")
class MasksFromTheHost(LowPart):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.cpu().long()
        return logits.masked_fill_(self.masks[slots].to(logits.device), -INF)


@defect("LP308", "copies the rows' slots to the host and applies the masks from there", style="v2")
class MasksOnTheHost(LowPart):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits.masked_fill_(self.masks[ctx.expanded_idx_mapping.cpu().long()], -INF)


@defect("LP202", "an own tensor is written only when an optional argument is given", style="portable")
class KeepsBesideItsColumns(lpkit.LogitsProcessor):
    history = "length"
    CASE = {"extra_args": {"hold_token": 8, "hold_after": 6}}

    class Params(lpkit.Params, prefix="hold_"):
        token: lpkit.TokenId
        after: int | None = lpkit.Field(None, ge=1, le=2**31)

    token = lpkit.column(torch.int64)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.after = torch.zeros(self.max_num_reqs + 1, dtype=torch.int64, device=self.device)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.token[request.slot] = request.params.token
        if request.params.after is not None:
            self.after[request.slot] = request.params.after
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        due = rows.output_len >= self.after[rows.slots]
        logits[torch.where(due, self.token[rows], -1).unsqueeze(1)] = -INF


class Noisy(lpkit.LogitsProcessor):
    """Adds noise by the request's seed and the position."""

    history = "length"
    CASE = {"seed": 11, "extra_args": {"jitter_scale": 2.0}}

    class Params(lpkit.Params, prefix="jitter_"):
        scale: float = lpkit.Field(gt=0.0, le=10.0)

    scale = lpkit.column(torch.float32)
    seed = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.scale[request.slot] = request.params.scale
        self.seed[request.slot] = self.seed_of(request.sampling_params.seed)
        return True

    def seed_of(self, given: int | None) -> int:
        return given or 7

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = torch.arange(logits.shape[1], device=logits.device)
        drawn = rng.uniform(self.seed[rows].unsqueeze(1), rows.output_len.unsqueeze(1), ids.unsqueeze(0))
        return logits.add_(self.scale[rows].unsqueeze(1) * drawn)


@sound("noise by the request's seed, and by a number of its own without one", "portable")
class NoisyBySeed(Noisy):
    pass


@defect("LP601", "takes the time where a client gives no seed, though the case gives one", style="portable")
class SeedsFromTheClock(Noisy):
    def seed_of(self, given: int | None) -> int:
        return given or time.time_ns() & 0xFFFFFFFF
