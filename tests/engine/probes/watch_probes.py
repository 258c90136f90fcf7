"""Processors for the watcher's tests: a correct one, and wrong ones whose mistake shows while serving."""

from __future__ import annotations

from typing import Any

import lpkit
import torch


class Push(lpkit.LogitsProcessor):
    """Correct: adds `push` to the logit of token 5."""

    history = "none"

    class Params(lpkit.Params):
        push: float = lpkit.Field(ge=0.0)

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
