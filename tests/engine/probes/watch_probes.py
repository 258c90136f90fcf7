"""Processors for the watcher's tests: a correct one, and ones that are wrong in a way which shows while serving."""

from __future__ import annotations

from typing import Any

import lpkit


class Push(lpkit.LogitsProcessor):
    """Correct: adds `push` to the logit of token 5."""

    history = "none"

    class Params(lpkit.Params):
        push: float = lpkit.Field(ge=0.0)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        return True

    def process(self, logits: Any, rows: lpkit.Rows) -> Any:
        logits[:, 5] += 1.0
        return logits


class Poison(Push):
    """Wrong: the last row becomes NaN at one token as soon as there are several."""

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        logits = super().apply(logits, ctx)
        if logits.shape[0] > 1:
            logits[-1, 3] = float("nan")
        return logits


class Neighbour(Push):
    """Wrong: one request that uses it is enough, and every row is changed."""

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        before = logits.clone()
        logits = super().apply(logits, ctx)
        if not before.equal(logits):
            logits[:, 7] -= 0.5
        return logits


class Breaks(Push):
    """Wrong: it raises as soon as there are three rows."""

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        if logits.shape[0] == 3:
            raise RuntimeError("a lookup failed")
        return super().apply(logits, ctx)
