"""Processors for the watcher's tests: a correct one, and wrong ones whose mistake shows while serving."""

from __future__ import annotations

from typing import Any

import lpkit
import lpkit.v1
import lpkit.v2
import torch


class Push(lpkit.LogitsProcessor):
    """Correct: adds `push` to the logit of token 5."""

    history = "none"

    class Params(lpkit.Params):
        push: float = lpkit.Field(ge=0.0)

    def process(self, logits: Any, rows: lpkit.Rows) -> Any:
        logits[:, 5] += 1.0
        return logits


class Always(lpkit.LogitsProcessor):
    """Correct: adds 1 to the logit of token 5 for every request."""

    history = "none"

    def process(self, logits: Any, rows: lpkit.Rows) -> Any:
        logits[:, 5] += 1.0
        return logits


class Poison(Push):
    """Wrong: with several rows, a logit of the last one becomes NaN."""

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        logits = super().apply(logits, ctx)
        if logits.shape[0] > 1:
            logits[-1, 3] = float("nan")
        return logits


class Neighbour(Push):
    """Wrong: a request that uses it changes every row."""

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        before = logits.clone()
        logits = super().apply(logits, ctx)
        if not before.equal(logits):
            logits[:, 7] -= 0.5
        return logits


class Breaks(Push):
    """Wrong: it raises for a batch of three rows."""

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        if logits.shape[0] == 3:
            raise RuntimeError("a lookup failed")
        return super().apply(logits, ctx)


class Trips(Push):
    """Wrong: it raises for the argument 13, after it has spoilt all rows."""

    value = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Push.Params]) -> bool:
        self.value[request.slot] = request.params.push
        return True

    def process(self, logits: Any, rows: lpkit.Rows) -> Any:
        if (self.value[rows] == 13.0).any():
            logits[:] = 0.0
            raise RuntimeError("a lookup failed")
        return super().process(logits, rows)


class KeepsV1(lpkit.v1.LogitsProcessor):
    """Wrong: it takes a request that enters with outputs for one that it knows, and uses the row's last value."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.push: dict[int, float] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        for row, params, _, outputs in batch_update.added if batch_update else ():
            if not outputs:
                self.push[row] = (params.extra_args or {}).get("push", 0.0)
        for source, target, kind in batch_update.moved if batch_update else ():
            values = self.push.get(source, 0.0), self.push.get(target, 0.0)
            self.push[target] = values[0]
            if kind.name == "SWAP":
                self.push[source] = values[1]

    def apply(self, logits: Any) -> Any:
        for row in range(logits.shape[0]):
            logits[row, 5] += self.push.get(row, 0.0)
        return logits


class KeepsV2(lpkit.v2.LogitsProcessor):
    """Wrong: the same mistake on V2, with a slot's value."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.states = req_states
        self.push: dict[int, float] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        if self.states.prefill_len.np[req_idx] == self.states.prompt_len.np[req_idx]:
            self.push[req_idx] = (params.extra_args or {}).get("push", 0.0)
        return bool((params.extra_args or {}).get("push"))

    def apply(self, logits: Any, ctx: Any) -> Any:
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            logits[row, 5] += self.push.get(slot, 0.0)
        return logits
