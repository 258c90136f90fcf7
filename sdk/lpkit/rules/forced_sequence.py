"""Forced sequence: the n-th output token is the n-th of a list, then an end token if there is one.

A function of the output's length alone, so a preempted request resumes in mid-sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

import lpkit
from lpkit import kernels

LIMIT = 1024  # tokens per request


class ForcedSequence(lpkit.LogitsProcessor):
    """Force the tokens `ids`, then `end`."""

    stage = "logits"  # greedy requests too
    history = "length"

    class Params(lpkit.Params):
        """A request's settings."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field(min_length=1, max_length=LIMIT)
        end: lpkit.TokenId | None = None

    due = lpkit.ragged(torch.int64, limit=LIMIT + 1)  # the tokens, then the end token or -1
    last = lpkit.column(torch.int64)  # position of the end token

    def admit(self, request: lpkit.Request[Params]) -> bool:
        return self.force(request.slot, request.params.ids, request.params.end)

    def force(self, slot: int, ids: Sequence[int], end: int | None) -> bool:
        """Write the columns of a request; False if nothing is forced."""
        self.due[slot] = [*ids, -1 if end is None else end]
        self.last[slot] = len(ids)
        return bool(ids) or end is not None

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        due = self.due.at(rows, rows.output_len.minimum(self.last[rows]).unsqueeze(1))  # [n, 1]
        return kernels.keep_ids_(logits, due)
