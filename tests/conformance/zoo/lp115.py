"""Defects that LP115 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import lpkit
import torch

from zoo.arguments import token
from zoo.correct.portable import PortableBias
from zoo.correct.v1 import V1Base
from zoo.registry import defect, sound


@defect("LP115", "declines token 0, which is false")
class DeclinesTokenZero(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:
        return bool(request.params.token) and super().admit(request)


@sound("token 0 is a token")
class BansAToken(V1Base):
    CASE = {"extra_args": {"banned": 7}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "banned")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, banned in self.rows.items():
            logits[row, banned] = -torch.inf
        return logits


@defect("LP115", "bans nothing if it is asked to ban token 0")
class BansNoTokenZero(BansAToken):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return self.read(params) or None


@defect(
    "LP115",
    "asks for the truth of a token, of which a given one is 0: this case has no effect",
    case={"extra_args": {"banned": 7}},
    others=[{"extra_args": {"banned": 0}}],
    line="if banned :=",
)
class BansNoGivenZero(BansAToken):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if banned := self.read(params):
            return banned
        return None


@sound("0 would switch it off, and validation says so")
class RefusesTokenZero(BansNoTokenZero):
    @classmethod
    def read(cls, params: Any) -> Any:
        banned = token(params, "banned")
        if banned == 0:
            raise ValueError("banned must be above 0")
        return banned


@sound("its argument is a number of tokens, of which 0 is none")
class KeepsTheBest(BansNoTokenZero):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, kept in self.rows.items():
            logits[row, logits[row] < logits[row].topk(kept).values[-1]] = -torch.inf
        return logits
