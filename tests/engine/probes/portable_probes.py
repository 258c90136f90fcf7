"""Portable processors for the engine tests."""

from __future__ import annotations

import math

import lpkit
import torch


class Count(lpkit.LogitsProcessor):
    """The first token generated is `count`, the next one `count` + 1, and so on."""

    history = "length"

    class Params(lpkit.Params):
        count: lpkit.TokenId

    first = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.first[request.slot] = request.params.count
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = (self.first[rows] + rows.output_len) % logits.shape[1]
        return torch.full_like(logits, -math.inf).scatter_(1, ids.unsqueeze(1), 0.0)


class Weary(lpkit.LogitsProcessor):
    """Takes `weary` off every token of prompt and output: sparse, and needs the tokens."""

    history = "tokens"

    class Params(lpkit.Params):
        weary: float

    cost = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.cost[request.slot] = request.params.weary
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[rows.tokens] = logits[rows.tokens] - self.cost[rows].unsqueeze(1)
