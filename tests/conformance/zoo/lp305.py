"""Defects that LP305 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import AfterMarker, Boost, Late, PortableLate, Simple
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect, sound


@defect("LP305", "writes a finite value over its token, masked or not, from the 20th token")
class LateRevival(Late):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] = 9.0 + bias


@defect("LP305", "revives a masked token after a marker that no case gives")
class RevivesAfterMarker(AfterMarker):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] = 9.0


@defect("LP305", "goes through probabilities and back: the masked get log(1e-10)")
class ThroughProbabilities(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, power in self.rows.items():
            probs = torch.softmax(logits[row], -1)
            logits[row] = torch.log(probs + 1e-10) * (1 + abs(power) / 10)
        return logits


@defect("LP305", "sets the forced token's logit without looking what it was")
class Forces(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] = max(float(logits[row, where]), bias) + 1
        return logits


@defect("LP305", "clamps: what was -inf is -50 now")
class Clamps(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx).unsqueeze(1)
        return torch.where(own != 0, (logits + own / 10).clamp(min=-1e9), logits)


@defect("LP305", "writes a finite value over its token, masked or not, from the 20th token")
class PortableLateRevival(PortableLate):
    def change(self, now: torch.Tensor) -> torch.Tensor:
        return torch.full_like(now, 9.0)


@defect("LP305", "a finite value over a mask, with arguments that no case gives", case={})
class RevivesWithoutCase(PortableLate):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.token[rows].unsqueeze(1)] = self.bias[rows].unsqueeze(1)


@defect("LP305", "lets the end come: sets its logit to the largest")
class LetsTheEndCome(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(output_ids) >= 2:
                logits[4] = logits.max() + abs(amount)
            return logits

        return apply


@sound("forces a token by a huge logit, as vLLM's thinking budget does, after three tokens")
class ForcesByAHugeLogit(Late):
    FIRST = 3

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] = 1e9
