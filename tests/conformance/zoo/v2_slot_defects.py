"""V2 processors that confuse rows with slots, and drafts with tokens."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.arguments import number, token
from zoo.registry import defect
from zoo.v2_correct import V2Base, V2Bias, V2History, V2Presence
from zoo.v2_defects import Boost, ByLength


@defect("LP202", "an argument that is not given keeps the last occupant's value")
class KeepsOptional(V2Base):
    CASE = {"extra_args": {"by": 2.0, "at": 9}}
    KEY = "by"

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.places = torch.full((req_states.max_num_reqs,), 5)

    @classmethod
    def read(cls, params: Any) -> float | None:
        token(params, "at")
        return number(params, "by")

    def add_request(self, req_idx: int, params: Any) -> bool:
        where = token(params, "at")
        if where is not None:
            self.places[req_idx] = where
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        ids = self.places.to(self.device)[ctx.expanded_idx_mapping.long()].unsqueeze(1)
        return logits.scatter_add_(1, ids, self.per_row(ctx).unsqueeze(1))


@defect("LP801", "the same, but it shows from the second token on")
class KeepsOptionalForLater(KeepsOptional):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        prompt = self.req_states.prompt_len.gpu[ctx.expanded_idx_mapping.long()]
        return torch.where((ctx.pos + 1 > prompt)[:, None], super().apply(logits.clone(), ctx), logits)


@defect("LP202", "a row of ids is overwritten up to the new one's length only")
class ShorterList(V2Bias):
    CASE = {"extra_args": {"ids": [4, 9], "by": -3.0}}

    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = V2Base.add_request(self, req_idx, params)
        ids = sorted(set((params.extra_args or {}).get("ids") or ()))
        if not wanted or not ids:
            self.values[req_idx] = 0.0
            return False
        self.ids[req_idx, : len(ids)] = torch.tensor(ids)
        return True

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        ids = self.ids.to(self.device)[ctx.expanded_idx_mapping.long()]
        picked = torch.zeros_like(logits).scatter(1, ids, 1.0)
        return torch.where(picked > 0, logits + self.per_row(ctx).unsqueeze(1), logits)


@defect("LP802", "keeps prompt_len.gpu from the constructor")
class KeepsPromptLen(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.prompt_len = req_states.prompt_len.gpu

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        # Looks right while the engine has one buffer: the values are brought up to date in place.
        if self.prompt_len.min() >= 0:
            self.prompt_len = self.req_states.prompt_len.gpu if self.fresh else self.prompt_len

    fresh = True

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        self.fresh = False
        return ctx.pos + 1 - self.prompt_len[ctx.expanded_idx_mapping.long()]

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.fresh = True
        return super().add_request(req_idx, params)


@defect("LP803", "finds its rows in the first apply of a step and uses them again in the next call")
class RowsOncePerStep(Boost):
    rows: torch.Tensor | None = None

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.rows = None

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if self.rows is None or self.rows.shape[0] != logits.shape[0]:
            self.rows = self.per_row(ctx)
        logits[:, 5] += self.rows
        return logits


@defect("LP803", "counts the calls of apply as steps")
class CallsAreSteps(Boost):
    calls = 0

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if self.calls == 0:
            super().apply(logits, ctx)
        self.calls += 1
        return logits

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.calls = 0


@defect("LP804", "total_len for every row, though a draft's row sees more")
class TotalLength(ByLength):
    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        seen = torch.minimum(self.req_states.total_len.gpu[slots], ctx.pos + 1)
        return seen - self.req_states.prompt_len.gpu[slots]


@defect("LP804", "a history without the drafts")
class IgnoresDrafts(V2Presence):
    def history(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.req_states.all_token_ids.gpu[ctx.expanded_idx_mapping.long()].long()

    def lengths(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return torch.minimum(ctx.pos + 1, self.req_states.total_len.gpu[ctx.expanded_idx_mapping.long()])


@defect("LP804", "scatters at input_ids, which holds -1 for a draft that is not known yet")
class UnknownDrafts(V2History):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits.scatter_add_(1, ctx.input_ids.long().unsqueeze(1), -self.per_row(ctx).unsqueeze(1))


@defect("LP804", "one row per request: the last rows of a verification are left out")
class OneRowEach(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        n = len(ctx.idx_mapping_np)
        logits[:n, 5] += self.per_row(ctx)[:n]
        return logits


@defect("LP805", "torch.take takes no int32 index")
class GathersInt32(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return torch.take(self.on_device, ctx.expanded_idx_mapping)


@defect("LP806", "takes a bound of zero for a warm-up and does nothing")
class ZeroIsWarmUp(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return super().apply(logits, ctx) if ctx.seq_lens_upper_bound_np.min() > 0 else logits


@defect("LP806", "as many requests as bounds")
class CountsBounds(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        drafts = logits.shape[0] // len(ctx.seq_lens_upper_bound_np)
        return super().apply(logits, ctx) if drafts else logits


@defect("LP807", "a share of the prompt length, which is 0 in warm-up")
class ShareOfPrompt(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        self.share = 1 / int(self.req_states.prompt_len.np[req_idx])
        return super().add_request(req_idx, params)


@defect("LP804", "leaves the draft rows of greedy requests alone: for them verification needs no sampling")
class GreedyDrafts(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.greedy = torch.zeros(req_states.max_num_reqs, dtype=torch.bool)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.greedy[req_idx] = params.temperature == 0
        return super().add_request(req_idx, params)

    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        greedy = self.greedy.to(self.device)[ctx.expanded_idx_mapping.long()]
        return torch.where(greedy & (ctx.expanded_local_pos > 0), 0.0, super().per_row(ctx))


@defect("LP808", "leaves the draft rows of resumed requests alone: their prompt is longer than its first part")
class ResumedDrafts(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        resumed = self.req_states.prefill_len.gpu[slots] > self.req_states.prompt_len.gpu[slots]
        return torch.where(resumed & (ctx.expanded_local_pos > 0), 0.0, super().per_row(ctx))


@defect("LP102", "refuses requests whose extra_args lack its key")
class WantsItsKey(Boost):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if params.extra_args is not None and cls.KEY not in params.extra_args and len(params.extra_args) > 0:
            raise ValueError(f"{cls.KEY} is required")
        cls.read(params)


@defect("LP507", "clears what is behind the end of each row in the engine's token buffer")
class ClearsTail(V2Presence):
    def history(self, ctx: v2.LogitsContext) -> torch.Tensor:
        buffer, slots = self.req_states.all_token_ids.gpu, ctx.expanded_idx_mapping.long()
        for slot, length in zip(slots.tolist(), self.req_states.total_len.gpu[slots].tolist(), strict=True):
            buffer[slot, length:] = -1
        return super().history(ctx)


@defect("LP507", "counts the engine's positions up in place to get lengths")
class CountsPositionsUp(ByLength):
    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return ctx.pos.add_(1) - self.req_states.prompt_len.gpu[ctx.expanded_idx_mapping.long()]


@defect("LP202", "keeps the prompt's last tokens in add_request: the buffer has an earlier request's still")
class ReadsBeforeTheFlush(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.last: dict[int, torch.Tensor] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        length = int(self.req_states.prompt_len.np[req_idx])
        self.last[req_idx] = self.req_states.all_token_ids.gpu[req_idx, max(length - 4, 0) : length].clone()
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, (slot, amount) in enumerate(
            zip(ctx.expanded_idx_mapping.tolist(), self.per_row(ctx).tolist(), strict=True)
        ):
            logits[row, self.last[slot].unique().clamp(0, logits.shape[1] - 1).long()] += amount
        return logits


@defect("LP211", "keeps prefill_len as the prompt's length: a resumed request's outputs are in it")
class TakesPrefillForPrompt(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.start = torch.zeros(req_states.max_num_reqs, dtype=torch.int64)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.start[req_idx] = int(self.req_states.prefill_len.np[req_idx])
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        starts = self.start.to(self.device)[ctx.expanded_idx_mapping.long()]
        logits[:, 5] += torch.where(ctx.pos + 1 - starts < 4, self.per_row(ctx), 0.0)
        return logits
