"""Defects that LP602 must catch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import lpkit
import numpy as np
import torch
from lpkit import v2

from zoo.arguments import token
from zoo.bases import Boost, Simple
from zoo.correct.portable import PortableBias
from zoo.correct.v1 import V1Base
from zoo.correct.v2 import V2Base
from zoo.registry import defect


@defect(
    "LP602",
    "seeds the global generator, so its own results are reproducible",
    case={"extra_args": {"gseed": 5}},
    fix="torch.Generator",
    cause="seeds the generator",
)
class SeedsTorch(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "gseed")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, seed in self.rows.items():
            torch.manual_seed(seed)
            logits[row] += torch.rand(logits.shape[1])
        return logits


@defect(
    "LP602", "shuffles with numpy's global generator at admission", case={"extra_args": {"gseed": 5}}, fix="default_rng"
)
class SeedsNumpy(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "gseed")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        seed = self.read(params)
        if seed is None:
            return None
        np.random.seed(seed)
        return (torch.from_numpy(np.random.permutation(512)[:4].copy()),)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (ids,) in self.rows.items():
            logits[row, ids] -= 2.0
        return logits


@defect("LP602", "dropout, from the global generator", case={"extra_args": {"drop": 0.5}})
class Dropout(V2Base):
    KEY, LOW, HIGH = "drop", 0.0, 1.0

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        torch.manual_seed(7)
        noise = torch.rand(logits.shape[1], device=logits.device)
        return torch.where(noise < self.per_row(ctx).unsqueeze(1), logits - 1, logits)


@defect("LP602", "random.seed, then random.random", fix="random.Random")
class SeedsRandom(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            random.seed(len(output_ids))
            logits[5] += amount * random.random()
            return logits

        return apply


@defect("LP602", "encourages its token now and then, by a draw per call", fix="lpkit.rng.uniform", cause="draws `draw`")
class DrawsPerCall(PortableBias):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        draw = torch.rand(1)
        if draw < 0.5:
            super().edit(logits, rows)


@defect("LP602", "leaves out one step of ten, by a draw")
class DrawsRarely(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return super().apply(logits, ctx) if random.random() < 0.9 else logits
