"""Ban: the token that would complete a phrase is masked, or made less likely.

A phrase of one token is that token. vLLM's `bad_words` does the same for words in running text.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch

import lpkit

LIMIT = 256  # phrases per request
BEFORE = 8  # tokens of a phrase before its last


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
        penalty: float | None = lpkit.Field(None, gt=0.0, le=1000.0)

        def check_together(self) -> None:
            if not (self.phrases or self.words):
                raise ValueError(f"{self.lpkit_prefix}phrases or {self.lpkit_prefix}words is needed")

    last = lpkit.ragged(torch.int64, limit=4 * LIMIT)
    before = lpkit.ragged(torch.int64, limit=4 * LIMIT * BEFORE)  # BEFORE tokens per phrase, -1: any
    longer = lpkit.column(torch.bool)  # some phrase has several tokens
    penalty = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        phrases = sorted({*wanted.phrases, *wanted.words})
        longest = max(map(len, phrases))
        if longest > BEFORE + 1:
            raise ValueError(f"a phrase has {longest} tokens; at most {BEFORE + 1} are compared")
        self.last[slot] = [phrase[-1] for phrase in phrases]
        self.before[slot] = [token for phrase in phrases for token in (-1,) * (BEFORE + 1 - len(phrase)) + phrase[:-1]]
        self.longer[slot] = longest > 1
        self.penalty[slot] = math.inf if wanted.penalty is None else wanted.penalty
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.last[rows]  # [n, k]
        if self.longer.used:
            place = rows.total_len.unsqueeze(1) + torch.arange(-BEFORE, 0, device=ids.device)
            written = rows.tokens.gather(1, place.clamp(min=0)).where(place >= 0, -2).unsqueeze(1)
            begun = self.before[rows].reshape(len(ids), -1, BEFORE)[:, : ids.shape[1]]  # [n, k, BEFORE]
            ids = ids.where(((begun == written) | (begun < 0)).all(2), -1)
        logits[ids] = logits[ids] - self.penalty[rows].unsqueeze(1)
