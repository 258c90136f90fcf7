"""Defects that LP109 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense, Simple
from zoo.correct.portable_odd import Chance
from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP109", "looks every row up, also those of requests without the plugin")
class LooksEveryRowUp(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in range(logits.shape[0]) if self.rows else ():
            where, bias = self.rows[row]
            logits[row, where] += bias
        return logits


@defect("LP109", "reads a field that the context does not have, once a request uses it", fix="correct the name")
class MisspelledField(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.values[ctx.expanded_index_mapping]  # type: ignore[attr-defined]
        return logits


@defect("LP109", "a name that was changed in one place only")
class RenamedOnce(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amounts[rows]  # type: ignore[attr-defined]
        return logits


@defect("LP109", "fails in every step, and no case is given that would tell", case={})
class ChanceMistyped(Chance):
    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.threshold  # type: ignore[attr-defined,no-any-return]


@defect(
    "LP109", "adds the output to the engine's prompt", line="history += output_ids", cause="the prompt token list of"
)
class GrowsThePrompt(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            history = prompt_ids
            history += output_ids
            logits[history[-1]] -= amount
            return logits

        return apply
