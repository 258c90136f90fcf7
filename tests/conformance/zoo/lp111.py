"""Defects that LP111 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import INF
from zoo.correct.v1 import V1Base
from zoo.correct.v1_odd import Kept
from zoo.registry import defect


@defect("LP111", "NaN is a number, and adds up")
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
