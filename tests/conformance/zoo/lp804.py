"""Defects that LP804 must catch, and correct processors that resemble them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.arguments import INF
from zoo.bases import Boost, Simple
from zoo.correct.v2 import V2Base, V2History
from zoo.correct.v2_odd import ExactWithoutDrafts
from zoo.registry import defect, sound


def count(amount: float, token: int, rejected: bool) -> Callable[..., torch.Tensor]:
    """Lowers a token by how often it came; ``rejected``: and keeps what turned out to be a rejected draft."""
    read = used = 0

    def limit(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        nonlocal read, used
        if rejected:
            used += output_ids[read:].count(token)
            read = len(output_ids)
        else:
            used = output_ids.count(token)
        logits[token] -= amount * used
        return logits

    return limit


class Quotas(Simple):
    CASE = {"extra_args": {"amount": 1.5, "quota": 7}}

    class Params(lpkit.Params):
        amount: float = lpkit.Field(gt=0.0, le=100.0)
        quota: lpkit.TokenId = 7

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return None if own is None else count(own.amount, own.quota, isinstance(self, CountsDrafts))


@defect(
    "LP804",
    "as many rows per request as the host bounds have room for: adaptive verification leaves some out",
)
class BoundsTellRows(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        bounds = torch.from_numpy(ctx.seq_lens_upper_bound_np[: len(ctx.idx_mapping_np)]).to(self.device)
        slots = ctx.idx_mapping.long()
        rows = (bounds - self.req_states.total_len.gpu[slots]).clamp(min=1)
        values = self.on_device[slots].repeat_interleave(rows)[: len(ctx.pos)]
        return torch.nn.functional.pad(values, (0, len(ctx.pos) - len(values)))


@defect("LP804", "takes them for lengths in a call without drafts: rejected ones of the step before count")
class ExactInCallsWithoutDrafts(ExactWithoutDrafts):
    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        self.exact = len(ctx.pos) == len(ctx.idx_mapping_np)
        return super().outputs(ctx)


@defect(
    "LP804",
    "takes the place of a request in the batch for a row",
    fix="ctx.expanded_idx_mapping",
    line="in enumerate(ctx.idx_mapping_np",
    cause="one per row",
)
class RequestsForRows(V2Base):
    KEY, LOW, HIGH = "banned", 0.0, 500.0
    CASE = {"extra_args": {"banned": 8.0}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.idx_mapping_np.tolist()):
            if self.values[slot]:
                ids = [int(self.values[slot]), 5]
                logits[row, ids] = -INF
        return logits


@defect(
    "LP804",
    "takes the place of a request in the batch for a row, and looks its state up by slot",
    line="in enumerate(ctx.idx_mapping_np",
    cause="one per row",
    fix="ctx.expanded_idx_mapping",
)
class StatesForRows(V2Base):
    CASE = {"extra_args": {"bias": 2.0, "kind": "even"}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.requests: dict[int, tuple[float, int]] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.requests.pop(req_idx, None)
        if value := self.read(params):
            self.requests[req_idx] = value, int(self.req_states.prompt_len.np[req_idx])
        return bool(value)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, req_idx in enumerate(ctx.idx_mapping_np):
            request = self.requests.get(int(req_idx))
            if request is None:
                continue
            value, prompt_len = request
            written = int(ctx.seq_lens_upper_bound_np[row]) - prompt_len
            logits[row, 3 + written % 12] += value
        return logits


@defect("LP804", "takes every request to have as many drafts as the first one")
class EqualDrafts(V2Base):
    CASE = {"extra_args": {"bias": 2.0}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.idx_mapping.long()
        each = -(-logits.shape[0] // len(slots))
        values = self.on_device[slots].repeat_interleave(each)[: logits.shape[0]]
        logits[:, 5] += values
        return logits


@defect("LP804", "scatters at input_ids, which holds -1 for a draft that is not known yet")
class UnknownDrafts(V2History):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits.scatter_add_(1, ctx.input_ids.long().unsqueeze(1), -self.per_row(ctx).unsqueeze(1))


@defect(
    "LP804",
    "a value for each request and not for each row",
    fix="ctx.expanded_idx_mapping",
    line="ctx.idx_mapping.long()",
    cause="one per row",
)
class ValuePerRequest(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits + self.on_device[ctx.idx_mapping.long()].unsqueeze(1)


@defect("LP804", "one row per request: the last rows of a verification are left out")
class OneRowEach(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        n = len(ctx.idx_mapping_np)
        logits[:n, 5] += self.per_row(ctx)[:n]
        return logits


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


@defect("LP804", "declares that it reads lengths, and reads ids", advice="placeholders", also=("LP403", "LP505"))
class ReadsMoreThanLengths(Simple):
    history = "length"

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1]] -= amount
            return logits

        return apply


@defect("LP804", "counts a token in drafts that are rejected", fix="derive everything from the ids of this call")
class CountsDrafts(Quotas):
    pass


@sound("counts a token in the outputs as they are now")
class CountsOutputs(Quotas):
    pass


@defect("LP804", "one length for all rows of a request", line="total_len.gpu[", state="length", advice="one-length")
class OneLength(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        length = self.req_states.total_len.gpu[ctx.expanded_idx_mapping.long()]
        return logits.scatter_add_(1, (3 + length % 12).long().unsqueeze(1), self.per_row(ctx).unsqueeze(1))


@defect("LP804", "takes drafts from the history", line="all_token_ids.gpu[", state="last", cause="looks for the drafts")
class StoredTokens(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        last = self.req_states.all_token_ids.gpu[ctx.expanded_idx_mapping.long(), ctx.pos.long()]
        return logits.scatter_add_(1, last.long().clamp(min=0).unsqueeze(1), self.per_row(ctx).unsqueeze(1))


@defect(
    "LP804",
    "lowers the token that was fed, which is -1 for a draft that is not known",
    line="fed = ctx.input_ids.long()",
    cause="`fed` holds -1; `input_ids` holds -1 for a draft",
    fix="where `ctx.input_ids < 0`",
)
class LowersTheInput(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        fed = ctx.input_ids.long()
        return logits.scatter_add_(1, fed.unsqueeze(1), -self.per_row(ctx).unsqueeze(1))


@sound("lowers the token that was fed if it is known")
class LowersAKnownInput(LowersTheInput):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        fed = ctx.input_ids.long()
        cost = torch.where(fed < 0, 0.0, self.per_row(ctx))
        return logits.scatter_add_(1, fed.clamp(min=0).unsqueeze(1), -cost.unsqueeze(1))
