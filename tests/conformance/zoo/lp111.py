"""Defects that LP111 must catch."""

from __future__ import annotations

import math
from typing import Any

import lpkit
import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import INF, number
from zoo.correct.v1 import V1Base
from zoo.correct.v1_odd import Kept
from zoo.registry import defect, sound


@defect("LP111", "NaN is a number, and adds up", fix="math.isfinite")
class AnyFloat(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        if bias is not None and type(bias) not in (int, float):
            raise ValueError("bias must be a number")
        return bias if bias is None or abs(bias) <= 1e30 or bias != bias else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.rows.items():
            logits[row, 5] += bias
        return logits


@defect("LP111", "any finite number is accepted, also those that are infinite as a float32")
class AnyFiniteFloat(AnyFloat):
    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        if bias is not None and not (type(bias) in (int, float) and -1e308 < bias < 1e308):
            raise ValueError("bias must be a finite number")
        return bias


@defect("LP111", "multiplies by any number from 0 on: 0 times -inf is NaN", advice="masked", line="logits[row] *=")
class MultipliesByZero(V1Base):
    CASE = {"extra_args": {"share": 0.5}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "share", 0.0, 4.0)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, share in self.rows.items():
            logits[row] *= share
        return logits


@defect("LP111", "a list of allowed tokens without any of the vocabulary allows none")
class AllowsNone(Kept):
    @classmethod
    def read(cls, params: Any) -> Any:
        ids = super().read(params)
        return [] if ids is None and (params.extra_args or {}).get("lower") else ids

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.rows, batch_update, self.enter)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in [row for row, ids in self.rows.items() if not ids]:
            logits[row] = -INF
        kept = {row: ids for row, ids in self.rows.items() if ids}
        self.rows, rows = kept, self.rows
        logits = super().apply(logits)
        self.rows = rows
        return logits


@defect("LP111", "divides by the smallest number that it accepts, which float32 holds as 0")
class DividesByAnything(V1Base):
    CASE = {"extra_args": {"scale": 2.0}}

    @classmethod
    def read(cls, params: Any) -> Any:
        scale = number(params, "scale", 0.0, 10.0)
        if scale == 0:
            raise ValueError("scale must be above 0")
        return scale

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, scale in self.rows.items():
            logits[row] = logits[row] / torch.tensor(scale)
        return logits


@sound("divides by nothing smaller than 0.01")
class DividesByEnough(DividesByAnything):
    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "scale", 0.01, 10.0)


@defect("LP111", "the first of two limits above the second", case={"extra_args": {"range": {"low": 0.5, "high": 2.0}}})
class LimitsCross(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        limits = (params.extra_args or {}).get("range")
        if limits is None:
            return None
        if not isinstance(limits, dict) or limits.keys() != {"low", "high"}:
            raise ValueError("range must have low and high")
        if not all(type(item) in (int, float) and 0 <= item <= 50 for item in limits.values()):
            raise ValueError("low and high must be numbers in [0, 50]")
        return limits["low"], limits["high"]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (low, high) in self.rows.items():
            logits[row] += math.sqrt(high - low) if high >= low else math.nan
        return logits


@defect("LP111", "divides by a number that may be as small as it likes", advice="bounded")
class DividesByTiny(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"tiny_scale": 2.5}}

    class Params(lpkit.Params, prefix="tiny_"):
        scale: float = lpkit.Field(gt=0)

    scale = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.div_(self.scale[rows].unsqueeze(1))


@sound("leaves each row its token alone, masked or not, as vLLM's thinking budget does")
class ForcesANamedToken(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"forces_token": 12}}

    class Params(lpkit.Params, prefix="forces_"):
        token: lpkit.TokenId

    token = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return torch.full_like(logits, -INF).scatter_(1, self.token[rows].unsqueeze(1), 0.0)


@defect(
    "LP111", "sets the logit of a token that masks forbade, if requests name token 0", cause="sets the logit whatever"
)
class RevivesForSomeTokens(ForcesANamedToken):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        token = self.token[rows].unsqueeze(1)
        set_, added = logits.scatter(1, token, 4.0), logits.scatter_add(1, token, torch.ones_like(logits))
        return torch.where(token == 0, set_, added)
