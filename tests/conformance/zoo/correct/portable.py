"""Correct processors on ``lpkit.LogitsProcessor``."""

from __future__ import annotations

import math

import lpkit
import torch

from zoo.arguments import INF
from zoo.registry import sound


@sound("min-p at the sampling stage", case={"temperature": 0.8, "extra_args": {"min_p": 0.2}})
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


@sound("repetition penalty, sparse, over prompt and output", case={"extra_args": {"rep_penalty": 1.7}})
class PortableRepetition(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params, prefix="rep_"):
        penalty: float = lpkit.Field(gt=0.01, le=100.0)

    penalty = lpkit.column(torch.float32, default=1.0)

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

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        logits[ids] = logits[ids] + self.bias[rows].unsqueeze(1)


@sound("a bias on one token")
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


@sound("acts by length")
class PortableMinTokens(PortableLength):
    pass


@sound("tokens, dense, out of place", case={"extra_args": {"copy_boost": 1.2}})
class PortableCopyBoost(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params):
        copy_boost: float = lpkit.Field(ge=-50.0, le=50.0)

    boost = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.boost[request.slot] = request.params.copy_boost
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        vocab = logits.shape[1]
        of_prompt = (rows.tokens >= 0) & (rows.tokens < vocab) & ~rows.is_output
        present = torch.zeros_like(logits, dtype=torch.int64)
        present.scatter_add_(1, rows.tokens.clamp(0, vocab - 1), of_prompt.long())
        return torch.where(present > 0, logits + self.boost[rows].unsqueeze(1), logits)


@sound("the sampling stage may change the argmax: greedy requests are not admitted")
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


@sound("every parameter has a default, so it acts on every request", case={})
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


@sound("reads all that it needs before it writes", case={"extra_args": {"pair_first": 5, "pair_second": 5}})
class ReadsBothFirst(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="pair_"):
        first: lpkit.TokenId
        second: lpkit.TokenId

    first = lpkit.column(torch.int64)
    second = lpkit.column(torch.int64)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        first, second = self.first[rows].unsqueeze(1), self.second[rows].unsqueeze(1)
        raised, lowered = logits[first] + 2.0, logits[second] - 1.0
        logits[first] = raised
        logits[second] = lowered


@sound("a wide column: several ids per request", case={"extra_args": {"ban_ids": [5, 8, 13]}})
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
