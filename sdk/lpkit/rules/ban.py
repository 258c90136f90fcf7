"""Ban: the token that would complete a phrase is masked, or made less likely.

A phrase of one token is that token. vLLM's `bad_words` does the same for words in running text.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch

import lpkit

LIMIT = 256  # phrases per request


class Ban(lpkit.LogitsProcessor):
    """Mask tokens that would complete one of `phrases` or `words`, or take `penalty` from their logits."""

    stage = "logits"  # greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        phrases: lpkit.TokenSequencesOf = lpkit.Field((), max_length=LIMIT)  # as they are written
        words: Annotated[lpkit.TokenSequencesOf, lpkit.WordForms(spaces=True, cases=True)] = lpkit.Field(
            (), max_length=LIMIT
        )
        penalty: float | None = lpkit.Field(None, ge=-1000.0, le=1000.0)  # negative: likelier

        def check_together(self) -> None:
            if not (self.phrases or self.words):
                raise ValueError(f"{self.lpkit_prefix}phrases or {self.lpkit_prefix}words is needed")

    phrases = lpkit.phrases(limit=4 * LIMIT)
    penalty = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        self.phrases[slot] = {*wanted.phrases, *wanted.words}
        self.penalty[slot] = math.inf if wanted.penalty is None else wanted.penalty
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.phrases.completing(rows)  # [n, k]
        logits[ids] = logits[ids] - self.penalty[rows].unsqueeze(1)
