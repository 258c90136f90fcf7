"""Defects that LP307 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lpkit import v2

from zoo.arguments import INF, number
from zoo.bases import Late, Simple
from zoo.correct.portable_odd import Eta
from zoo.correct.v1 import Bias, V1Base
from zoo.correct.v2 import V2Base
from zoo.registry import defect


@defect(
    "LP307",
    "masks everything but its token, and that token too, when the budget of 30 is spent",
    cause="masks every token for this request",
)
class LateSilence(Late):
    FIRST = 30

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row.fill_(-INF)


@defect("LP307", "an epsilon cut-off that keeps no best token: flat rows lose everything")
class CutsEverything(V1Base):
    CASE = {"extra_args": {"epsilon": 0.003}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "epsilon", 0.0, 0.01)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, epsilon in self.rows.items():
            logits[row, torch.softmax(logits[row], -1) < epsilon] = -INF
        return logits


@defect("LP307", "a strict comparison with the maximum", case={"extra_args": {"sigma": 0.0}}, also=("LP310",))
class StrictlyAbove(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "sigma", 0.0, 10.0)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, sigma in self.rows.items():
            floor = logits[row].max() - sigma * logits[row].std()
            logits[row, logits[row] <= floor] = -INF
        return logits


@defect(
    "LP307",
    "a softmax by hand, whose numbers are too large",
    line="= torch.exp(",
    cause="no comparison with NaN",
    also=("LP310",),
)
class OwnSoftmax(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            weights = torch.exp(logits[row])
            shares = weights / weights.sum()
            logits[row] = logits[row].masked_fill(~(shares >= shares.max() * 0.1), -INF)
        return logits


@defect("LP307", "keeps what lies above the mean of a row", cause="passes the rule's condition")
class AboveTheMean(V2Base):
    KEY, LOW, HIGH = "floor", 0.0, 1.0
    CASE = {"extra_args": {"floor": 0.4}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx).unsqueeze(1)
        finite = logits > -INF
        mean = torch.where(finite, logits, 0.0).sum(1, keepdim=True) / finite.sum(1, keepdim=True)
        return torch.where((own > 0) & (logits <= mean), -INF, logits)


@defect("LP307", "the entropy of a row with a masked token is NaN, and no token passes")
class EtaOfMasked(Eta):
    def entropy(self, log_p: torch.Tensor) -> torch.Tensor:
        return -(log_p.exp() * log_p).sum(1, keepdim=True)


@defect("LP307", "forbids what is as likely as the best", cause="`ties` is True for all tokens")
class ForbidsTies(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            ties = logits == logits.max()
            if int(ties.sum()) > 1:
                logits[ties] = -INF
            else:
                logits[5] += amount
            return logits

        return apply


@defect(
    "LP307",
    "keeps the tokens of a list that may hold none of the vocabulary",
    cause="`kept` is empty: the rule masks every token",
)
class KeepsOfAnEmptyList(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            kept = [token for token in (3, 4) if len(output_ids) < 6]
            values = logits[kept]
            logits[:] = -INF
            logits[kept] = values
            return logits

        return apply


@defect(
    "LP307",
    "keeps the tokens of a list, from which it takes its last ones",
    cause="`left` is empty, and `mask` is True",
)
class KeepsWhatIsLeft(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            left = {5, 6, 7} if len(output_ids) % 4 else set()
            mask = torch.ones_like(logits, dtype=torch.bool)
            mask[list(left)] = False
            return logits.masked_fill_(mask, -INF)

        return apply
