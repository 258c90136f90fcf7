"""Defects that LP302 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.arguments import INF
from zoo.bases import Boost, Late
from zoo.correct.v1 import DenseMinP, V1Base
from zoo.lp201.v1_history import Growing
from zoo.registry import defect


@defect("LP302", "scales the whole batch, from the 20th token of any of its requests")
class LateScale(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if any(self.due(outputs) for *_, outputs in self.rows.values()):
            logits *= 0.5
        return logits


@defect("LP302", "computes over the whole batch with a neutral 0, through a softmax")
class NeutralValues(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.used:
            return logits
        floor = self.values[: logits.shape[0]].unsqueeze(1).to(logits.device)
        log_probs = torch.log_softmax(logits, -1)
        return log_probs.masked_fill_(log_probs < log_probs.amax(1, keepdim=True) + floor.log(), -INF)


@defect("LP302", "edits the slice from its first row to its last")
class Slices(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            first, last = min(self.rows), max(self.rows)
            bias = torch.tensor([self.rows.get(row, 0.0) for row in range(first, last + 1)], device=logits.device)
            logits[first : last + 1] = logits[first : last + 1] * 0.1 / 0.1
            logits[first : last + 1, 5] += bias
        return logits


@defect("LP302", "keeps its mapping for batches of equal size", line="self.mapping =", cause="of an earlier step")
class KeepsMapping(Boost):
    mapping: torch.Tensor | None = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.mapping = None
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if self.mapping is None or self.mapping.shape[0] != logits.shape[0]:
            self.mapping = ctx.expanded_idx_mapping.long().clone()
        logits[:, 5] += self.on_device[self.mapping]
        return logits


@defect("LP302", "a factor per slot, which is 0 for all others", cause="with 1 the row stays")
class ScalesByZero(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits / self.per_row(ctx).unsqueeze(1)


@defect("LP302", "keeps values by slot, and reads them by row", cause="what is kept by slot is read by row")
class ReadsByRow(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.on_device[-logits.shape[0] :]
        return logits


@defect("LP302", "declines a request, and edits its rows while others are edited", line="return super().add_request")
class DeclinesAndEdits(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        return super().add_request(req_idx, params) and params.temperature != 0.75


@defect("LP302", "declines amounts of less than 1, and adds them all the same", line=">= 1.0")
class DeclinesLittle(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        return super().add_request(req_idx, params) and float(self.values[req_idx]) >= 1.0


@defect("LP302", "the table grows with ones", line="torch.cat([self.amounts", fix="fill what is added")
class GrowsWithOnes(Growing):
    def put(self, row: int, amount: float | None) -> None:
        if row >= len(self.amounts):
            self.amounts = torch.cat([self.amounts, torch.ones(row + 1 - len(self.amounts))])
        if amount is not None:
            self.amounts[row] = amount


@defect("LP302", "edits its rows in place, and then clamps all in a copy", line="return edited.clamp(max=12.0)")
class ClampsEveryRow(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        edited = super().apply(logits, ctx)
        return edited.clamp(max=12.0)
