"""Correct V1 processors: ways to keep state by row. Some look odd; no check may fail any of them."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v1
from lpkit.v1 import BatchUpdate, MoveDirectionality, process_dict_updates

from zoo.arguments import INF, number, token
from zoo.registry import sound

SWAP = MoveDirectionality.SWAP


class V1Base(v1.LogitsProcessor):
    """Base of most V1 specimens: a dict from row to state, kept by vLLM's own helper."""

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


@sound("a dict from row to state, kept by vLLM's helper")
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
    """The same bookkeeping written out, so that a defect can change a part of it."""

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


@sound("raises or lowers a token, as a text says")
class RaisesOrLowers(ByHand):
    CASE = {"extra_args": {"bias": 2.5, "token": 7, "mode": "raise"}}
    MODES: tuple[Any, Any] = ("raise", "lower")

    @classmethod
    def read(cls, params: Any) -> Any:
        found, mode = super().read(params), (params.extra_args or {}).get("mode", cls.MODES[0])
        if mode not in cls.MODES:
            raise ValueError(f"mode must be one of {cls.MODES}, not {mode!r}")
        return found and (found[0], found[1] if mode == cls.MODES[0] else -found[1])

    @staticmethod
    def lowers(state: Any) -> bool:
        return state is not None and state[1] < 0


@sound("removals before additions: not observable on the engine's updates")
class RemovesFirst(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self.removals(batch_update)
            self.additions(batch_update)
            self.moves(batch_update)


@sound("dense host columns by row, moved as tensors, sent to the device when dirty")
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


@sound("no arguments and no state: caps every row of every request", case={})
class SoftCap(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return None

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.where(logits > -INF, 30.0 * torch.tanh(logits / 30.0), logits)


@sound("returns a new tensor and leaves its input alone")
class OutOfPlace(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits.clone()) if self.rows else logits


@sound("builds its device tensors only when apply needs them")
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


@sound("claims argmax invariance, rightly: scales around the maximum", case={"extra_args": {"sharpen": 1.3}})
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


@sound("changes the argmax, and says so", case={"extra_args": {"typical": 0.7}})
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


@sound("keyed by an identity of its own that moves with the row")
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


@sound("falsy arguments mean something: a bias of 0 bans the token", case={"extra_args": {"zero": 0, "at": 6}})
class FalsyCounts(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        bias, where = number(params, "zero"), token(params, "at")
        return None if bias is None or where is None else (where, -INF if bias == 0 else bias)


@sound("reads plain SamplingParams fields, no extra_args", case={"presence_penalty": 1.1})
class ByField(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return params.presence_penalty or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3] -= amount
        return logits
