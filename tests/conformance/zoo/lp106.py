"""Defects that LP106 must catch."""

from __future__ import annotations

from typing import Any

import torch

from zoo.arguments import INF
from zoo.correct.v1 import V1Base
from zoo.registry import defect


@defect("LP106", "insists on a bool, which is 1 after its way through the server", case={"extra_args": {"mute": True}})
class InsistsOnBool(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("mute")
        if value is not None and not isinstance(value, bool):
            raise ValueError("mute must be true or false")
        return value or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row, 5] = -INF
        return logits


@defect("LP106", "insists on a tuple", case={"extra_args": {"pair": (4, 9)}}, also=("LP109",))
class InsistsOnTuple(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("pair")
        if value is not None and not isinstance(value, tuple):
            raise ValueError("pair must be a pair")
        return value

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (first, _) in self.rows.items():
            logits[row, first] += 3.0
        return logits


@defect(
    "LP106",
    "`is True`: accepted after its way through the server, and without effect",
    case={"extra_args": {"mute": True}},
)
class IsTrue(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("mute")
        if value not in (None, True, False):
            raise ValueError("mute must be true or false")
        return True if value is True else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row, 5] = -INF
        return logits
