"""End: a reply that is neither too short nor too long, and that becomes the likelier to end the longer it is."""

from __future__ import annotations

import math
from typing import Annotated

import torch

import lpkit
from lpkit import kernels
from lpkit.rules import EVERYTHING


class End(lpkit.LogitsProcessor):
    """Mask `tokens` before `at_least` output tokens, add `by` for each one behind `after`, force them at `at_most`."""

    stage = "logits"  # greedy requests too
    history = "length"

    class Params(lpkit.Params):
        """A request's settings."""

        tokens: Annotated[lpkit.TokenIdsOf, lpkit.WordForms(special=True)] = lpkit.Field(min_length=1, max_length=16)
        at_least: int = lpkit.Field(0, ge=0)
        at_most: int | None = lpkit.Field(None, ge=0)
        after: int = lpkit.Field(0, ge=0)
        by: float = lpkit.Field(0.0, ge=-100.0, le=100.0)

        def check_together(self) -> None:
            if self.at_most is not None and self.at_most < self.at_least:
                prefix = self.lpkit_prefix
                raise ValueError(f"{prefix}at_most {self.at_most} is below {prefix}at_least {self.at_least}")

    tokens = lpkit.ragged(torch.int64, limit=16)
    at_least = lpkit.column(torch.int64)
    at_most = lpkit.column(torch.int64, default=EVERYTHING)
    after = lpkit.column(torch.int64)
    by = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        super().admit(request)
        self.tokens[request.slot] = set(request.params.tokens)  # a token that is given twice gets `by` once
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        written, tokens = rows.output_len.unsqueeze(1), self.tokens[rows]
        added = (written - self.after[rows].unsqueeze(1)).clamp(min=0) * self.by[rows].unsqueeze(1)
        added = added.masked_fill(written < self.at_least[rows].unsqueeze(1), -math.inf)
        # Padding adds -0.0, which changes no bit.
        logits.scatter_add_(1, tokens.clamp(0), added.where(tokens >= 0, -0.0))
        return kernels.keep_ids_(logits, tokens, where=written >= self.at_most[rows].unsqueeze(1))
