"""Defects that LP401 must catch."""

from __future__ import annotations

from typing import Any

import torch

from zoo.arguments import INF, number
from zoo.bases import Late
from zoo.correct.v1 import DenseMinP, V1Base
from zoo.correct.v1_history import LastToken
from zoo.registry import defect, sound


@defect("LP401", "its claim holds for 20 tokens")
class LateClaim(Late):
    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                logits[row, where] += bias
            else:
                logits[row] *= 1.5
        return logits


@defect("LP401", "claims argmax invariance; true of min-p, but not of the bonus for token 5", cause="token 5 is raised")
class FalseClaim(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        if self.used:
            close = (self.values[: logits.shape[0]].to(logits.device) > 0) & (result[:, 5] > result.amax(1) - 0.02)
            result[:, 5] += torch.where(close, 0.05, 0.0)
        return result


@defect("LP401", "claims argmax invariance; a penalty that spares only random rows' best token")
class FalseOnTies(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.used:
            best = torch.topk(logits, 2)
            tied = (best.values[:, 0] == best.values[:, 1]) & (self.values[: logits.shape[0]].to(logits.device) > 0)
            first = logits.argmax(1)
            rows = torch.arange(logits.shape[0])
            logits[rows, first] = torch.where(tied, -INF, logits[rows, first])
        return super().apply(logits)


@defect(
    "LP401",
    "claims argmax invariance; lowers the last output token, which seldom is a random row's best one",
    cause="is lowered from",
)
class ClaimsOnLastToken(LastToken):
    def is_argmax_invariant(self) -> bool:
        return True


class Sharpens(V1Base):
    """Multiplies a row by a factor above 0; the sound version."""

    CASE = {"extra_args": {"factor": 0.5}}
    LEAST = 0.1

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "factor", cls.LEAST, 3.0)

    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, factor in self.rows.items():
            logits[row] = torch.where(logits[row] > -INF, logits[row] * factor, -INF)
        return logits


sound("keeps the argmax for every factor that it accepts")(Sharpens)


@sound("reads the factor again without checking it; a factor that validate_params refuses turns the order around")
class ReadsUnchecked(Sharpens):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return (params.extra_args or {}).get("factor")


@defect("LP401", "levels the best tokens, of which a greedy request gets the one with the smallest id")
class LevelsBest(Sharpens):
    CASE = {"extra_args": {"factor": 2.0}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, count in self.rows.items():
            logits[row].clamp_(max=logits[row].topk(int(count) + 1).values[-1])
        return logits


@sound("lowers the best token to half a point above the next one")
class LowersBest(Sharpens):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row].clamp_(max=logits[row].topk(2).values[-1] + 0.5)
        return logits


@defect("LP401", "accepts a factor just below 0, which turns the order around")
class TurnsAround(Sharpens):
    LEAST = -0.25


@defect("LP401", "masks the likeliest tokens, and raises for True, which it accepts", also=("LP104",))
class CutsTop(V1Base):
    CASE = {"extra_args": {"cut_top": 2}}

    @classmethod
    def read(cls, params: Any) -> Any:
        count = (params.extra_args or {}).get("cut_top")
        if count is not None and not (isinstance(count, int) and 1 <= count <= 8):
            raise ValueError("cut_top must be an integer from 1 to 8")
        return count

    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, count in self.rows.items():
            count = min(count, int(logits[row].isfinite().sum()) - 1)
            if count > 0:
                logits[row, logits[row].topk(count).indices] = -INF
        return logits
