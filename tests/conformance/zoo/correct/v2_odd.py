"""Correct V2 processors that look odd."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.arguments import INF, token
from zoo.bases import Boost, ByLength, V2OnceOld
from zoo.correct.v1_odd import Frozen
from zoo.correct.v2 import V2Base, V2Bias, V2MinP
from zoo.registry import sound


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


class LargeVocabulary(V2Bias):
    """Reads the engine's vocabulary size, which its base assumes; the correct version."""

    CASE = {"extra_args": {"ids": [4], "by": -3.0}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.vocab_size = req_states.vocab_size

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        ids = (params.extra_args or {}).get("ids", [])
        if not isinstance(ids, list) or len(ids) > cls.WIDTH or any(type(i) is not int or i < 0 for i in ids):
            raise ValueError(f"ids must be a list of at most {cls.WIDTH} token ids, not {ids!r}")

    def add_request(self, req_idx: int, params: Any) -> bool:
        ids = sorted({i for i in (params.extra_args or {}).get("ids", []) if i < self.vocab_size})
        self.values[req_idx] = (self.read(params) or 0.0) if ids else 0.0
        self.ids[req_idx] = torch.tensor((ids * self.WIDTH or [0] * self.WIDTH)[: self.WIDTH])
        return bool(ids) and self.read(params) is not None


sound("ids of any vocabulary, one of them named several times over")(LargeVocabulary)


@sound("takes the host bounds for lengths in an engine that has no drafts")
class ExactWithoutDrafts(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.exact = vllm_config.speculative_config is None

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        if not self.exact:
            return super().outputs(ctx)
        bounds = torch.from_numpy(ctx.seq_lens_upper_bound_np[: len(ctx.pos)]).to(self.device)
        return bounds - self.req_states.prompt_len.gpu[ctx.idx_mapping.long()]


@sound("refuses drafts in its constructor")
class NoDrafts(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        if vllm_config.speculative_config is not None:
            raise ValueError(f"drafts ({vllm_config.speculative_config.method}) are not supported")
        super().__init__(vllm_config, req_states)


@sound("acts once the output is long enough", case={"extra_args": {"least": 2.0}})
class V2LongEnough(V2OnceOld):
    pass


@sound("unlocks a token once another one stands in the text, which ends at each row's own position")
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


@sound("copies the rows' slots to the host, where its table is, and the masks back")
class MasksFromTheHost(LowPart):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.cpu().long()
        return logits.masked_fill_(self.masks[slots].to(logits.device), -INF)


@sound("nothing can be set on an instance", case={"extra_args": {"floor": 0.15}})
class FrozenMinP(Frozen, V2MinP):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.frozen = True
