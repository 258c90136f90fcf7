"""Defects that LP310 must catch, and correct processors that resemble them."""

from __future__ import annotations

import lpkit
import torch
from lpkit import v2

from zoo.arguments import INF
from zoo.bases import Dense
from zoo.correct.v1 import Bias
from zoo.correct.v2 import V2MinP
from zoo.registry import defect, sound


@defect(
    "LP310",
    "returns early if anything is masked",
    line="return logits if bool",
    cause="has another result",
    also=("LP112",),
)
class OffForMasks(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if bool((logits == -INF).any()) else super().apply(logits)


@defect("LP310", "leaves rows with masked tokens alone, against NaN", case={"extra_args": {"floor": 0.15}})
class MinPWithoutMasks(V2MinP):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        before = logits.clone()
        return torch.where((before == -INF).any(1, keepdim=True), before, super().apply(logits, ctx))


@defect(
    "LP310", "the deviation of a row with a masked token is NaN", line="logits.std(", cause="has come into `logits.std"
)
class SpreadOfMasked(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        least = logits.amax(1, keepdim=True) - logits.std(1, keepdim=True) * self.amount[rows].unsqueeze(1).abs()
        return logits.masked_fill_(logits < least, -INF)


class GateByEntropy(Dense):
    """Flattens a row that is undecided, and sharpens any other."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        log_p = logits.log_softmax(1)
        p = log_p.exp()
        entropy = self.entropy(p, log_p)
        scale = 1.0 + self.amount[rows].abs()
        return logits * torch.where(entropy > 0.01, 1.0 / scale, scale).unsqueeze(1)

    def entropy(self, p: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
        return -(p * log_p).sum(1)


defect(
    "LP310",
    "the entropy of a row with a masked token is NaN, and no threshold holds",
    line="-(p * log_p)",
    cause="`log_p` is -inf",
)(GateByEntropy)


@sound("masked tokens count nothing in the entropy that decides")
class GateByTheirEntropy(GateByEntropy):
    def entropy(self, p: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
        return torch.special.entr(p).sum(1)


@sound("the mean of a row is of the tokens that are not masked, so each mask moves it a little")
class Centres(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        free = logits > -INF
        mean = logits.masked_fill(~free, 0.0).sum(1, keepdim=True) / free.sum(1, keepdim=True)
        share = self.amount[rows].abs().clamp(max=50.0).unsqueeze(1) / 100
        return torch.where(free, logits + share * (mean - logits), logits)


@sound("sets a token to an amount above this mean, which may be nearly what it has")
class SetsAboveTheMean(Dense):
    CASE = {"extra_args": {"dense_amount": 2.0}}

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        free = logits > -INF
        mean = logits.masked_fill(~free, 0.0).sum(1) / free.sum(1)
        logits[:, 12] = torch.where(free[:, 12], mean + self.amount[rows], -INF)
        return logits


@sound("makes log-probabilities of the logits of its rows")
class Normalises(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return super().process(logits.log_softmax(1), rows)


@sound("leaves masked tokens alone, and no others")
class LeavesMaskedTokens(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.where(logits > -INF, super().apply(logits.clone()), logits)
