"""Correct V2 processors, and a class that implements both interfaces by hand."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v1, v2
from lpkit.sampling_params import GREEDY_EPSILON
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import INF, noise, number, token, tokens
from zoo.correct.v1 import Bias
from zoo.registry import sound


class V2Base(v2.LogitsProcessor):
    """A value per slot, on the host until it is staged."""

    KEY, LOW, HIGH = "bias", -100.0, 100.0

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        self.req_states = req_states
        self.device = req_states.device
        self.values = torch.zeros(req_states.max_num_reqs)
        self.on_device = torch.zeros(req_states.max_num_reqs, device=self.device)

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)

    @classmethod
    def read(cls, params: Any) -> float | None:
        return number(params, cls.KEY, cls.LOW, cls.HIGH)

    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        self.values[req_idx] = value or 0.0
        return bool(value)

    def apply_staged_writes(self) -> None:
        self.on_device.copy_(self.values)

    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.on_device[ctx.expanded_idx_mapping.long()]


@sound("min-p before temperature, for all rows at once", case={"extra_args": {"floor": 0.15}})
class V2MinP(V2Base):
    KEY, LOW, HIGH = "floor", 0.0, 1.0

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.temperature = torch.ones(req_states.max_num_reqs)
        self.log_floor = torch.zeros(req_states.max_num_reqs, device=self.device)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.temperature[req_idx] = params.temperature if params.temperature > GREEDY_EPSILON else 1.0
        return super().add_request(req_idx, params)

    def apply_staged_writes(self) -> None:
        self.log_floor.copy_(self.temperature * self.values.log())

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        floor = logits.amax(1) + self.log_floor[ctx.expanded_idx_mapping.long()]
        return logits.masked_fill_(logits < floor.unsqueeze(1), -INF)


@sound("logit bias as padded id and value tables", case={"extra_args": {"ids": [4, 9], "by": -3.0}})
class V2Bias(V2Base):
    KEY = "by"
    WIDTH = 8

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.ids = torch.zeros(req_states.max_num_reqs, self.WIDTH, dtype=torch.int64)

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        if len(set(tokens(params, "ids") or ())) > cls.WIDTH:
            raise ValueError(f"at most {cls.WIDTH} ids")

    def add_request(self, req_idx: int, params: Any) -> bool:
        ids = sorted(set(tokens(params, "ids") or ()))
        wanted = super().add_request(req_idx, params) and bool(ids)
        if not wanted:
            self.values[req_idx] = 0.0
            self.ids[req_idx] = 0
            return False
        self.ids[req_idx] = torch.tensor([*ids, *ids[:1] * (self.WIDTH - len(ids))])
        return True

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        ids = self.ids.to(logits.device)[ctx.expanded_idx_mapping.long()]
        raised = logits.gather(1, ids) + self.per_row(ctx).unsqueeze(1)
        return logits.scatter_(1, ids, raised)


class V2History(V2Base):
    """Counts by the row's own visible history, drafts included."""

    KEY, LOW, HIGH = "weight", 0.01, 100.0
    CASE = {"extra_args": {"weight": 1.25}}

    def lengths(self, ctx: v2.LogitsContext) -> torch.Tensor:
        """Tokens that each row sees."""
        return ctx.pos + 1

    def history(self, ctx: v2.LogitsContext) -> torch.Tensor:
        """``[rows, max_model_len]`` ids that each row sees; behind them anything."""
        slots = ctx.expanded_idx_mapping.long()
        ids = self.req_states.all_token_ids.gpu[slots].long()
        for row, local in enumerate(ctx.expanded_local_pos.tolist()):
            for back in range(local):
                ids[row, ctx.pos[row] - back] = ctx.input_ids[row - back]
        return ids


@sound("penalises the last token of each row, drafts included")
class V2LastToken(V2History):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        last = ctx.input_ids.long().clamp(min=0).unsqueeze(1)
        slots = ctx.expanded_idx_mapping.long()
        partial = ctx.pos + 1 < self.req_states.prefill_len.gpu[slots]
        amount = torch.where(partial, 0.0, self.per_row(ctx)).unsqueeze(1)
        return logits.scatter_(1, last, logits.gather(1, last) - amount)


@sound("an output-presence penalty over the engine's token buffer")
class V2Presence(V2History):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        prompt = self.req_states.prompt_len.gpu[slots]
        ids, weights = self.history(ctx), self.per_row(ctx)
        places = torch.arange(ids.shape[1], device=self.device)
        counted = (places >= prompt[:, None]) & (places < self.lengths(ctx)[:, None]) & (ids >= 0)
        present = torch.zeros_like(logits, dtype=torch.int64)
        present.scatter_add_(1, torch.where(counted, ids, 0), counted.long())
        return torch.where(present > 0, logits - weights[:, None], logits)


@sound("acts by length: bans a token until the output is long enough", case={"extra_args": {"least": 4.0}})
class V2MinTokens(V2Base):
    KEY, LOW, HIGH = "least", 0.0, 400.0

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        length = ctx.pos + 1 - self.req_states.prompt_len.gpu[slots]
        early = length < self.per_row(ctx)
        logits[:, 2] = torch.where(early, -INF, logits[:, 2])
        return logits


@sound("no arguments: divides every row by two, and relies on the default add_request", case={})
class V2AlwaysOn(v2.LogitsProcessor):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits / 2


@sound("loops over rows on the host: slow, and right", case={"extra_args": {"bias": 2.0}})
class V2Loop(V2Base):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            if self.values[slot]:
                logits[row, 5] += self.values[slot]
        return logits


@sound("random by (seed, position), drafts included", case={"extra_args": {"xseed": 21}})
class V2Seeded(V2Base):
    @classmethod
    def read(cls, params: Any) -> float | None:
        return token(params, "xseed")

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, (slot, pos) in enumerate(zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True)):
            if self.values[slot]:
                logits[row] += noise(1, int(self.values[slot]), pos, logits.shape[1])
        return logits


@sound("one class, both bases, told apart by the constructor's arguments")
class TwoFaced(v1.LogitsProcessor, v2.LogitsProcessor):
    CASE = {"extra_args": {"bias": -1.75, "token": 12}}

    def __init__(self, vllm_config: Any, place: Any, is_pin_memory: bool | None = None) -> None:
        self.rows: dict[int, tuple[int, float]] = {}

    validate_params = classmethod(Bias.validate_params.__func__)  # type: ignore[attr-defined]
    read = classmethod(Bias.read.__func__)  # type: ignore[attr-defined]

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.rows, batch_update, lambda params, prompt, outputs: self.read(params))

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.rows.pop(req_idx, None)
        state = self.read(params)
        if state is not None:
            self.rows[req_idx] = state
        return state is not None

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext | None = None) -> torch.Tensor:
        slots = range(logits.shape[0]) if ctx is None else ctx.expanded_idx_mapping.tolist()
        for row, slot in enumerate(slots):
            if slot in self.rows:
                where, bias = self.rows[slot]
                logits[row, where] += bias
        return logits
