"""Correct processors of every style. Some look odd; all keep the contract, and no check may fail them."""

from __future__ import annotations

import functools
import itertools
import math
import random
from typing import Any

import lpkit
import torch
from lpkit import v1, v2
from lpkit.sampling_params import GREEDY_EPSILON
from lpkit.v1 import BatchUpdate, MoveDirectionality, process_dict_updates

from zoo.arguments import INF, noise, number, token, tokens
from zoo.registry import sound

SWAP = MoveDirectionality.SWAP

# -- V1 ------------------------------------------------------------------------------------------------------


class V1Base(v1.LogitsProcessor):
    """What most V1 specimens have in common: a dict from row to state, kept by vLLM's own helper."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.rows: dict[int, Any] = {}
        self.device = device
        self.max_num_seqs = vllm_config.scheduler_config.max_num_seqs

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)

    @classmethod
    def read(cls, params: Any) -> Any:
        """The request's state, or None if it does not use the plugin."""
        return number(params, "bias")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return self.read(params)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.rows, batch_update, self.enter)


@sound("a dict from row to state, kept by vLLM's helper", "v1")
class Bias(V1Base):
    CASE = {"extra_args": {"bias": 2.5, "token": 7}}

    @classmethod
    def read(cls, params: Any) -> Any:
        bias, where = number(params, "bias"), token(params, "token")
        return None if bias is None or where is None else (where, bias)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            states = list(self.rows.values())
            rows = torch.tensor(list(self.rows), device=self.device)
            ids = torch.tensor([where for where, _ in states], device=self.device)
            logits[rows, ids] += torch.tensor([bias for _, bias in states], device=self.device)
        return logits


class ByHand(Bias):
    """The same bookkeeping written out, for defects to change one part of."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        self.additions(batch_update)
        self.removals(batch_update)
        self.moves(batch_update)

    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            self.place(row, self.enter(params, prompt, outputs))

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.rows.pop(row, None)

    def moves(self, update: BatchUpdate) -> None:
        for source, target, kind in update.moved:
            (self.swap if kind is SWAP else self.move)(source, target)

    def place(self, row: int, state: Any) -> None:
        self.rows.pop(row, None)
        if state is not None:
            self.rows[row] = state

    def move(self, source: int, target: int) -> None:
        self.place(target, self.rows.pop(source, None))

    def swap(self, first: int, second: int) -> None:
        one, other = self.rows.pop(first, None), self.rows.pop(second, None)
        self.place(first, other)
        self.place(second, one)


@sound("removals before additions: not observable on the engine's updates", "v1")
class RemovesFirst(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self.removals(batch_update)
            self.additions(batch_update)
            self.moves(batch_update)


@sound("dense host columns by row, moved as tensors, sent to the device when dirty", "v1")
class DenseMinP(V1Base):
    CASE = {"extra_args": {"dense_min_p": 0.2}}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.values = torch.zeros(self.max_num_seqs)
        self.used = 0
        self.sent: torch.Tensor | None = None

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "dense_min_p", 0.0, 1.0)

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        self.sent = None
        for row, params, prompt, outputs in batch_update.added:
            self.values[row] = self.enter(params, prompt, outputs) or 0.0
        for row in batch_update.removed:
            self.values[row] = 0.0
        for source, target, kind in batch_update.moved:
            kept = self.values[target].item() if kind is SWAP else 0.0
            self.values[target] = self.values[source]
            self.values[source] = kept
        self.used = int(self.values.count_nonzero())

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.used:
            return logits
        if self.sent is None or self.sent.shape[0] != logits.shape[0]:
            self.sent = self.values[: logits.shape[0]].log().to(logits.device).unsqueeze(1)
        return logits.masked_fill_(logits < logits.amax(1, keepdim=True) + self.sent, -INF)


@sound("no arguments and no state: caps every row of every request", "v1", case={})
class SoftCap(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return None

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.where(logits > -INF, 30.0 * torch.tanh(logits / 30.0), logits)


@sound("returns a new tensor and leaves its input alone", "v1")
class OutOfPlace(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits.clone()) if self.rows else logits


@sound("builds its device tensors only when apply needs them", "v1")
class Lazy(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.packed: tuple[torch.Tensor, ...] | None = None

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if process_dict_updates(self.rows, batch_update, self.enter):
            self.packed = None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.rows:
            return logits
        if self.packed is None:
            ids, bias = zip(*self.rows.values(), strict=True)
            self.packed = tuple(torch.tensor(part, device=self.device) for part in (list(self.rows), ids, bias))
        rows, ids, bias = self.packed
        logits.index_put_((rows, ids), bias, accumulate=True)
        return logits


class History(V1Base):
    """State is the weight and the live output list."""

    CASE = {"extra_args": {"weight": 1.5}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "weight", 0.01, 100.0)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, *_) in self.rows.items():
            if outputs and outputs[-1] >= 0:
                logits[row, outputs[-1]] -= weight
        return logits


@sound("reads the last token of the live list in apply", "v1")
class LastToken(History):
    pass


@sound("counts tokens incrementally, and starts again when the list is shorter or newer than its cache", "v1")
class CountingCache(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, [], {}]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, done, counts) in self.rows.items():
            if outputs[: len(done)] != done:
                done.clear()
                counts.clear()
            for item in outputs[len(done) :]:
                counts[item] = counts.get(item, 0) + (item >= 0)
            done[:] = outputs
            if counts:
                values = torch.tensor(list(counts.values()), dtype=torch.float32, device=self.device)
                logits[row, torch.tensor(list(counts), device=self.device)] -= weight * values
        return logits


@sound("acts by length alone: forces a sequence, then the end", "v1", case={"extra_args": {"say": [9, 11, 10]}})
class ForcedSequence(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return tokens(params, "say")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        say = self.read(params)
        return None if say is None else (say, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (say, outputs) in self.rows.items():
            wanted = say[min(len(outputs), len(say) - 1)]
            kept = logits[row, wanted].clone()
            if kept > -INF:  # a grammar may forbid it: then there is nothing to force
                logits[row] = -INF
                logits[row, wanted] = kept
        return logits


@sound("random, but a function of the request's seed and the position", "v1", case={"extra_args": {"gumbel_seed": 11}})
class SeededNoise(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "gumbel_seed")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        seed = self.read(params)
        return None if seed is None else (seed, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (seed, outputs) in self.rows.items():
            logits[row] += noise(0, seed, len(outputs), logits.shape[1]).to(self.device)
        return logits


@sound("a torch.Generator of its own, seeded anew for each row and position", "v1")
class OwnGenerator(SeededNoise):
    CASE = {"extra_args": {"gumbel_seed": 11}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (seed, outputs) in self.rows.items():
            generator = torch.Generator().manual_seed(seed * 100_003 + len(outputs))
            rng = random.Random(seed)
            drawn = torch.rand(logits.shape[1], generator=generator) * rng.random()
            logits[row] += drawn.to(self.device)
        return logits


@sound("needs the prompt: bans what would repeat a bigram of prompt and output", "v1")
class NoRepeatBigram(V1Base):
    CASE = {"extra_args": {"bigram": 1.0}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "bigram", 0.1, 10.0)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else (prompt or [], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (prompt, outputs) in self.rows.items():
            seen = [*prompt, *outputs]
            if seen[-1:] < [0]:
                continue  # unknown: leave the row unchanged
            banned = [b for a, b in itertools.pairwise(seen) if a == seen[-1] and b >= 0]
            if banned:
                logits[row, torch.tensor(banned)] = -INF
        return logits


@sound("claims argmax invariance, rightly: scales around the maximum", "v1", case={"extra_args": {"sharpen": 1.3}})
class Sharpen(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "sharpen", 0.1, 10.0)

    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, power in self.rows.items():
            logits[row] *= power
        return logits


@sound("changes the argmax, and says so", "v1", case={"extra_args": {"typical": 0.7}})
class DropsTheBest(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "typical", 0.0, 1.0)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, share in self.rows.items():
            best = torch.topk(logits[row], 2)
            if best.values[1] > best.values[0] - share:  # also -inf > -inf - share is False
                logits[row, best.indices[0]] -= 2 * share
        return logits


@sound("keyed by an identity of its own that moves with the row", "v1")
class Indirect(ByHand):
    """Rows hold tickets; what a ticket means is elsewhere, and dropped with the ticket."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.next_ticket = 0
        self.meaning: dict[int, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if state is None:
            return None
        self.next_ticket += 1
        self.meaning[self.next_ticket] = state
        return self.next_ticket

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        held = set(self.rows.values())
        self.meaning = {ticket: state for ticket, state in self.meaning.items() if ticket in held}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ticket in self.rows.items():
            where, bias = self.meaning[ticket]
            logits[row, where] += bias
        return logits


@sound("falsy arguments mean something: a bias of 0 bans the token", "v1", case={"extra_args": {"zero": 0, "at": 6}})
class FalsyCounts(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        bias, where = number(params, "zero"), token(params, "at")
        return None if bias is None or where is None else (where, -INF if bias == 0 else bias)


@sound("reads plain SamplingParams fields, no extra_args", "v1", case={"presence_penalty": 1.1})
class ByField(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return params.presence_penalty or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3] -= amount
        return logits


# -- V2 ------------------------------------------------------------------------------------------------------


class V2Base(v2.LogitsProcessor):
    """One value per slot, on the host until it is staged."""

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


@sound("min-p before temperature, for all rows at once", "v2", case={"extra_args": {"floor": 0.15}})
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


@sound("logit bias as padded id and value tables", "v2", case={"extra_args": {"ids": [4, 9], "by": -3.0}})
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


@sound("penalises the last token of each row, drafts included", "v2")
class V2LastToken(V2History):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        last = ctx.input_ids.long().clamp(min=0).unsqueeze(1)
        slots = ctx.expanded_idx_mapping.long()
        partial = ctx.pos + 1 < self.req_states.prefill_len.gpu[slots]
        amount = torch.where(partial, 0.0, self.per_row(ctx)).unsqueeze(1)
        return logits.scatter_(1, last, logits.gather(1, last) - amount)


@sound("an output-presence penalty over the engine's token buffer", "v2")
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


@sound("acts by length: bans a token until the output is long enough", "v2", case={"extra_args": {"least": 4.0}})
class V2MinTokens(V2Base):
    KEY, LOW, HIGH = "least", 0.0, 400.0

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        length = ctx.pos + 1 - self.req_states.prompt_len.gpu[slots]
        early = length < self.per_row(ctx)
        logits[:, 2] = torch.where(early, -INF, logits[:, 2])
        return logits


@sound("no arguments: divides every row by two, and relies on the default add_request", "v2", case={})
class V2AlwaysOn(v2.LogitsProcessor):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits / 2


@sound("loops over rows on the host: slow, and right", "v2", case={"extra_args": {"bias": 2.0}})
class V2Loop(V2Base):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            if self.values[slot]:
                logits[row, 5] += self.values[slot]
        return logits


@sound("random by (seed, position), drafts included", "v2", case={"extra_args": {"xseed": 21}})
class V2Seeded(V2Base):
    @classmethod
    def read(cls, params: Any) -> float | None:
        return token(params, "xseed")

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, (slot, pos) in enumerate(zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True)):
            if self.values[slot]:
                logits[row] += noise(1, int(self.values[slot]), pos, logits.shape[1])
        return logits


# -- both interfaces by hand ---------------------------------------------------------------------------------


@sound("one class, both bases, told apart by the constructor's arguments", "v1+v2")
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


# -- portable ------------------------------------------------------------------------------------------------


@sound("min-p at the sampling stage", "portable", case={"temperature": 0.8, "extra_args": {"min_p": 0.2}})
class PortableMinP(lpkit.LogitsProcessor):
    stage = "sampling"

    class Params(lpkit.Params):
        min_p: float = lpkit.Field(0.0, ge=0.0, le=1.0)

    log_min_p = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        if not request.params.min_p:
            return False
        self.log_min_p[request.slot] = math.log(request.params.min_p)
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax(-1, keepdim=True) + rows.temperature * self.log_min_p[rows].unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@sound("repetition penalty, sparse, over prompt and output", "portable", case={"extra_args": {"rep_penalty": 1.7}})
class PortableRepetition(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params, prefix="rep_"):
        penalty: float = lpkit.Field(gt=0.01, le=100.0)

    penalty = lpkit.column(torch.float32, default=1.0)

    def admit(self, request: lpkit.Request) -> bool:
        self.penalty[request.slot] = request.params.penalty
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        values, penalty = logits[rows.tokens], self.penalty[rows].unsqueeze(1)
        logits[rows.tokens] = torch.where(values > 0, values / penalty, values * penalty)


class PortableBias(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"pb_bias": 3.0, "pb_token": 17}}

    class Params(lpkit.Params, prefix="pb_"):
        bias: float = lpkit.Field(ge=-100.0, le=100.0)
        token: lpkit.TokenId

    bias = lpkit.column(torch.float32)
    token = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.bias[request.slot] = request.params.bias
        self.token[request.slot] = request.params.token
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        logits[ids] = logits[ids] + self.bias[rows].unsqueeze(1)


@sound("a bias on one token", "portable")
class PortableTokenBias(PortableBias):
    pass


class PortableLength(lpkit.LogitsProcessor):
    history = "length"
    CASE = {"extra_args": {"least_tokens": 5}}

    class Params(lpkit.Params):
        least_tokens: int = lpkit.Field(ge=0, le=10_000)

    least = lpkit.column(torch.int32)

    def admit(self, request: lpkit.Request) -> bool:
        self.least[request.slot] = request.params.least_tokens
        return request.params.least_tokens > 0

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        early = rows.output_len < self.least[rows]
        logits[:, 2] = torch.where(early, -INF, logits[:, 2])
        return logits


@sound("acts by length", "portable")
class PortableMinTokens(PortableLength):
    pass


@sound("tokens, dense, out of place", "portable", case={"extra_args": {"copy_boost": 1.2}})
class PortableCopyBoost(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params):
        copy_boost: float = lpkit.Field(ge=-50.0, le=50.0)

    boost = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.boost[request.slot] = request.params.copy_boost
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        of_prompt = (rows.tokens >= 0) & ~rows.is_output
        present = torch.zeros_like(logits, dtype=torch.int64)
        present.scatter_add_(1, rows.tokens.clamp(min=0), of_prompt.long())
        return torch.where(present > 0, logits + self.boost[rows].unsqueeze(1), logits)


@sound("the sampling stage may change the argmax: greedy requests are not admitted", "portable")
class PortableXtc(lpkit.LogitsProcessor):
    stage = "sampling"
    CASE = {"extra_args": {"xtc_threshold": 0.05}}

    class Params(lpkit.Params, prefix="xtc_"):
        threshold: float = lpkit.Field(gt=0.0, le=0.5)

    log_threshold = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.log_threshold[request.slot] = math.log(request.params.threshold)
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        likely = torch.log_softmax(logits / rows.temperature, -1) >= self.log_threshold[rows].unsqueeze(1)
        last = torch.where(likely, logits, INF).amin(-1, keepdim=True)
        return torch.where(likely & (logits > last), -INF, logits)


@sound("every parameter has a default, so it acts on every request", "portable", case={})
class PortableDefaults(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        soft_cap: float = lpkit.Field(25.0, ge=1.0, le=1000.0)

    cap = lpkit.column(torch.float32, default=25.0)

    def admit(self, request: lpkit.Request) -> bool:
        self.cap[request.slot] = request.params.soft_cap
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        cap = self.cap[rows].unsqueeze(1)
        return torch.where(logits > -INF, cap * torch.tanh(logits / cap), logits)


@sound("a wide column: several ids per request", "portable", case={"extra_args": {"ban_ids": [5, 8, 13]}})
class PortableBan(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="ban_"):
        ids: list[lpkit.TokenId] = lpkit.Field(min_length=1, max_length=6)

    ids = lpkit.column(torch.int64, default=-1, width=6)

    def admit(self, request: lpkit.Request) -> bool:
        ids = request.params.ids
        self.ids[request.slot] = [*ids, *[-1] * (6 - len(ids))]
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.ids[rows]] = -INF


# -- request-level -------------------------------------------------------------------------------------------


class AdapterBase(lpkit.AdapterLogitsProcessor):
    CASE = {"extra_args": {"ad_amount": 2.25}}

    class Params(lpkit.Params, prefix="ad_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)


@sound("(output_ids, logits), in place", "adapter")
class AdapterLast(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        if own is None:
            return None

        def lower(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1]] -= own.amount
            return logits

        return lower


@sound("(prompt_ids, output_ids, logits), a new tensor", "adapter")
class AdapterPrompt(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)

        def cite(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            raised = logits.clone()
            for item in {*prompt_ids, *output_ids[:2]}:
                raised[item] += own.amount
            return raised

        return cite if own else None


@sound("a bound functools.partial", "adapter")
class AdapterPartial(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return functools.partial(_ban_until, own.amount) if own else None


def _ban_until(amount: float, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    if len(output_ids) < 3:
        logits[4] -= amount
    return logits


@sound("declares that it reads lengths only", "adapter")
class AdapterLength(AdapterBase):
    history = "length"

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return (lambda output_ids, logits: logits * (1 + len(output_ids) / 50)) if own else None


@sound("a callable object that replays its cache from the tokens", "adapter")
class AdapterReplays(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return Replaying(own.amount) if own else None


class Replaying:
    """Remembers how far it has read, and reads again from the start when the past changed."""

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.read: list[int] = []
        self.total = 0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if output_ids[: len(self.read)] != self.read:
            self.read, self.total = [], 0
        self.total += sum(output_ids[len(self.read) :])
        self.read = list(output_ids)
        logits[self.total % logits.shape[0]] += self.amount
        return logits
