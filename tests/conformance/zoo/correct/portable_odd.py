"""Correct portable processors that look odd."""

from __future__ import annotations

import lpkit
import torch
from lpkit import kernels, rng, sequences

from zoo.arguments import INF
from zoo.bases import PortableLate
from zoo.correct.portable import PortableBias
from zoo.registry import sound


class Noisy(lpkit.LogitsProcessor):
    """Adds noise by the request's seed and the position."""

    history = "length"
    CASE = {"seed": 11, "extra_args": {"jitter_scale": 2.0}}

    class Params(lpkit.Params, prefix="jitter_"):
        scale: float = lpkit.Field(gt=0.0, le=10.0)

    scale = lpkit.column(torch.float32)
    seed = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.scale[request.slot] = request.params.scale
        self.seed[request.slot] = self.seed_of(request.sampling_params.seed)
        return True

    def seed_of(self, given: int | None) -> int:
        return given or 7

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = torch.arange(logits.shape[1], device=logits.device)
        drawn = rng.uniform(self.seed[rows].unsqueeze(1), rows.output_len.unsqueeze(1), ids.unsqueeze(0))
        return logits.add_(self.scale[rows].unsqueeze(1) * drawn)


class Eta(lpkit.LogitsProcessor):
    """Masks what is less likely than the entropy of the row makes it; the best token stays."""

    stage = "sampling"
    CASE = {"extra_args": {"eta_epsilon": 0.02}}

    class Params(lpkit.Params, prefix="eta_"):
        epsilon: float = lpkit.Field(gt=0.0, lt=1.0)

    epsilon = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        log_p = torch.log_softmax(logits / rows.temperature, dim=1)
        epsilon = self.epsilon[rows].unsqueeze(1)
        limit = torch.minimum(epsilon, epsilon.sqrt() * self.entropy(log_p).neg().exp())
        p = log_p.exp()
        return torch.where(p >= torch.minimum(limit, p.amax(1, keepdim=True)), logits, -INF)

    def entropy(self, log_p: torch.Tensor) -> torch.Tensor:
        return -(log_p.exp() * log_p).nan_to_num(0.0).sum(1, keepdim=True)


sound("masks by the entropy of a row, in which masked tokens count nothing")(Eta)


@sound("begins with the 20th token")
class PortableFromTheTwentieth(PortableLate):
    pass


@sound("declares what its arguments may be, and gets no case", case={})
class WithoutCase(PortableLate):
    pass


@sound("noise by the request's seed, and by a number of its own without one")
class NoisyBySeed(Noisy):
    pass


@sound("grows with the reply's share of the prompt, whose length is 0 for prompt embeddings on V1")
class SharesKnownPrompt(PortableBias):
    history = "length"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        logits[ids] = logits[ids] + (self.bias[rows] * rows.output_len / self.length(rows)).unsqueeze(1)

    def length(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.prompt_len.clamp(min=1)


@sound("acts often only with a high probability and a low threshold together", case={})
class Chance(lpkit.LogitsProcessor):
    """Lowers the best token of some steps, if a second token is above the threshold."""

    stage = "sampling"
    history = "length"

    class Params(lpkit.Params, prefix="chance_"):
        probability: float = lpkit.Field(ge=0.0, le=1.0)
        threshold: float = lpkit.Field(0.4, gt=0.0, le=1.0)
        seed: int | None = None

    probability = lpkit.column(torch.float32)
    threshold = lpkit.column(torch.float32)
    seed = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.probability[request.slot] = request.params.probability
        self.threshold[request.slot] = request.params.threshold
        self.seed[request.slot] = request.params.seed or 0
        return request.params.probability > 0.0

    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return self.threshold[rows]

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        drawn = rng.uniform(self.seed[rows], rows.total_len) < self.probability[rows]
        best = torch.softmax(logits / rows.temperature, -1).topk(2)
        due = drawn & (best.values[:, 1] >= self.least(rows))
        return logits.scatter_add_(1, best.indices[:, :1], -rows.temperature * due.unsqueeze(1))


@sound("acts between two markers only, which must be different tokens", case={})
class Between(lpkit.LogitsProcessor):
    """Forces the closing token after an opening token, at a given distance."""

    history = "tokens"

    class Params(lpkit.Params, prefix="between_"):
        most: int = lpkit.Field(ge=0)
        opens: lpkit.TokenId
        closes: lpkit.TokenId

    most = lpkit.column(torch.int64)
    opens = lpkit.column(torch.int64)
    closes = lpkit.column(torch.int64)

    def due(self, rows: lpkit.Rows) -> torch.Tensor:
        opened = sequences.end_of_last(rows.tokens, self.opens[rows].unsqueeze(1))
        closed = sequences.end_of_last(rows.tokens, self.closes[rows].unsqueeze(1))
        return (opened > closed) & (rows.total_len - opened >= self.most[rows])

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.keep_ids_(logits, self.closes[rows].unsqueeze(1), self.due(rows).unsqueeze(1))
