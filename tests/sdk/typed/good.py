"""A plugin without mistakes, as a type checker sees it."""

from __future__ import annotations

import lpkit
import torch
from lpkit.v1 import LogitsProcessor as V1LogitsProcessor


class Bias(lpkit.LogitsProcessor):
    stage = "sampling"
    history = "length"

    class Params(lpkit.Params, prefix="bias_"):
        strength: float = lpkit.Field(ge=0.0)
        tokens: frozenset[lpkit.TokenId] = frozenset()

    strength = lpkit.column(torch.float32)
    listed = lpkit.ragged(torch.int64)
    allowed = lpkit.token_set()

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.strength[request.slot] = request.params.strength
        self.listed[request.slot] = request.params.tokens
        self.allowed[request.slot] = request.params.tokens
        return request.params.strength > 0

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        inside = self.allowed.contains(rows, self.listed[rows])
        return logits + self.strength[rows].unsqueeze(1) * inside.sum(1, keepdim=True)


class Quoted(Bias):
    def admit(self, request: lpkit.Request[Quoted.Params]) -> bool:
        return request.params.strength > 1


class Unsubscripted(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params):
        anything: int

    def admit(self, request: lpkit.Request) -> bool:
        return bool(request.params.anything) and request.slot >= 0

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[rows.tokens] = 0.0


class ForAll(lpkit.AdapterLogitsProcessor):
    history = "none"

    def new_req_logits_processor(self, params: object) -> None:
        return None


def wrap(target: type[V1LogitsProcessor]) -> type[object]:
    return lpkit.bridge(target, keys="on", history="length")
