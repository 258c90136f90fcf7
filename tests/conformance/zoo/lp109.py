"""Defects that LP109 must catch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense, Simple
from zoo.correct.portable_odd import Chance
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect


@defect("LP109", "looks every row up, also those of requests without the plugin")
class LooksEveryRowUp(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in range(logits.shape[0]) if self.rows else ():
            where, bias = self.rows[row]
            logits[row, where] += bias
        return logits


@defect("LP109", "takes no context", cause="the engine passes other arguments", fix="take what the engine passes")
class TakesNoContext(Boost):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return logits


@defect("LP109", "reads a field that the context does not have, once a request uses it", fix="correct the name")
class MisspelledField(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.values[ctx.expanded_index_mapping]  # type: ignore[attr-defined]
        return logits


@defect(
    "LP109",
    "takes the slots of its requests for their rows",
    cause="is the number of a slot",
    fix="index the logits by rows",
)
class SlotsForRows(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for slot in ctx.idx_mapping.tolist():
            logits[slot, 5] += self.values[slot]
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


@defect("LP109", "gives back nothing before the first token", line="return", cause="returned None")
class NothingBeforeTheFirst(Simple):
    def make(self, amount: float, params: Any) -> Any:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor | None:
            if not output_ids:
                return None
            logits[5] += amount
            return logits

        return apply


def _lowered(output_ids: list[int], logits: torch.Tensor, *, by: float) -> torch.Tensor:
    logits[5] -= by
    return logits


@defect("LP109", "gives a value by name, which counts as a parameter", cause="`by` is a third parameter")
class GivesByName(V1Base):
    """Takes its callables as vLLM's ``AdapterLogitsProcessor`` does, which counts three parameters."""

    CASE = {"extra_args": {"bias": 2.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        made = self.new_req_logits_processor(params)
        return functools.partial(made, prompt, outputs) if made else None

    def new_req_logits_processor(self, params: Any) -> Any:
        bias = self.read(params)
        return None if bias is None else functools.partial(_lowered, by=bias)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, call in self.rows.items():
            logits[row] = call(logits[row])
        return logits


@defect("LP109", "a default is the third parameter", line="window: int = 4", cause="is given token ids for its logits")
class DefaultCounts(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def rule(output_ids: list[int], logits: torch.Tensor, window: int = 4) -> torch.Tensor:
            logits[output_ids[-window:]] -= amount
            return logits

        return rule
