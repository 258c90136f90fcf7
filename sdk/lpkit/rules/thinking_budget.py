"""Thinking budget: after so many tokens of reasoning the end marker is forced (`thinking_token_budget` of vLLM).

Where a request stands is read off its tokens at every step, so preemption and rejected drafts need no care.
"""

from __future__ import annotations

import torch

import lpkit
from lpkit import kernels, sequences

LIMIT = 16  # tokens per marker


class ThinkingBudget(lpkit.LogitsProcessor):
    """Force `end` once `budget` tokens follow `start`."""

    stage = "logits"  # greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        budget: int = lpkit.Field(ge=0)
        start: tuple[lpkit.TokenId, ...] = lpkit.Field(min_length=1, max_length=LIMIT)
        end: tuple[lpkit.TokenId, ...] = lpkit.Field(min_length=1, max_length=LIMIT)

    budget = lpkit.column(torch.int64)
    start = lpkit.ragged(torch.int64, limit=LIMIT)
    end = lpkit.ragged(torch.int64, limit=LIMIT)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        end = self.end[rows]
        began = sequences.end_of_last(rows.tokens, self.start[rows])  # [n]: where the reasoning began, -1: never
        ended = sequences.end_of_last(rows.tokens, end)
        written = sequences.begun(rows.tokens, rows.total_len, end, since=began)  # tokens of the marker
        due = end.gather(1, written.unsqueeze(1))  # [n, 1]
        forced = (began > ended) & (rows.total_len - began >= self.budget[rows])
        return kernels.keep_ids_(logits, due, forced.unsqueeze(1))
