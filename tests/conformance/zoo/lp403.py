"""Defects that LP403 must catch."""

from __future__ import annotations

import lpkit
import torch

from zoo.arguments import INF, MIN_P, REPETITION
from zoo.bases import Dense
from zoo.correct.portable import PortableMinP, PortableRepetition
from zoo.registry import defect


@defect(
    "LP403",
    "forgets the temperature that is still to come on V2",
    case=MIN_P,
    line="floor = logits.amax",
    cause="`floor` is the first",
)
class ForgetsTemperature(PortableMinP):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax(-1, keepdim=True) + self.log_min_p[rows].unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@defect(
    "LP403",
    "uses the prompt at admission, which V2 does not give",
    advice="no-prompt",
    line="len(request.prompt_token_ids",
)
class PromptAtAdmission(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount + len(request.prompt_token_ids or ()) / 10
        return True


@defect(
    "LP403",
    "copies the prompt's ids at admission, where V2 has none",
    advice="no-prompt",
    line="set(request.prompt_token_ids",
    also=("LP222",),
)
class CopiesThePrompt(Dense):
    ids = lpkit.ragged(torch.int64, limit=8192)

    def admit(self, request: lpkit.Request) -> bool:
        self.ids[request.slot] = set(request.prompt_token_ids or ())
        return super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = self.ids[rows]
        chosen = torch.zeros_like(logits).scatter_add_(1, ids.clamp(min=0), (ids >= 0).to(logits.dtype))
        return logits.add_(self.amount[rows].unsqueeze(1) * chosen)


@defect(
    "LP403",
    "lowers the tokens of the text, which are seldom the best, at the stage of samplers",
    case=REPETITION,
    line='stage = "sampling"',
    advice="stage",
)
class LowersAtTheEnd(PortableRepetition):
    stage = "sampling"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[rows.tokens] = logits[rows.tokens] - self.penalty[rows].unsqueeze(1)


@defect(
    "LP403",
    "masks the best token where the next one is close, at the stage of samplers",
    case=MIN_P,
    cause="once `stage`",
)
class TakesTheNext(PortableMinP):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        values, ids = logits.topk(2)
        close = values[:, :1] - values[:, 1:] < -self.log_min_p[rows].unsqueeze(1) / 2
        return logits.scatter(1, ids[:, :1], torch.where(close, -INF, values[:, :1]))
