"""Defects that LP703 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense, Simple
from zoo.correct.v1 import Bias, DenseMinP
from zoo.registry import defect


@defect("LP703", "asks the device whether there is anything to do")
class AsksTheDevice(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if bool((self.values > 0).any()) else logits


@defect("LP703", "makes tensors of its lists in every step, as vLLM's example does")
class MakesTensorsEachStep(Bias):
    pass


@defect("LP703", "sends a table of its constructor in every step")
class SendsItsTable(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.levels = torch.tensor([0.5, 1.0, 2.0])

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx) * self.levels.to(logits.device)[1]
        return logits


@defect("LP703", "asks the device for the mapping that is on the host already")
class MappingFromDevice(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if any(self.values[slot] for slot in ctx.idx_mapping.tolist()):
            return super().apply(logits, ctx)
        return logits


@defect("LP703", "names the column by a list")
class ColumnByList(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, [5]] += self.amount[rows].unsqueeze(1)
        return logits


@defect("LP703", "turns the row into a list")
class RowToList(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if max(logits.tolist()) > 0:
                logits[5] += amount
            return logits

        return apply
