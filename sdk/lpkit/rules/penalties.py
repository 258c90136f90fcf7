"""Penalties for tokens that occurred before: repetition (CTRL, arXiv 1909.05858), presence and frequency (OpenAI API).

Only the tokens of the history are read and written, whatever the size of the vocabulary.
"""

from __future__ import annotations

import torch

import lpkit
from lpkit import sequences


class Penalties(lpkit.LogitsProcessor):
    """Lower the logits of earlier tokens: repetition for prompt and output, presence and frequency for the output."""

    stage = "logits"  # before temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        repetition: float = lpkit.Field(1.0, ge=0.01, le=100.0)
        presence: float = lpkit.Field(0.0, ge=-2.0, le=2.0)
        frequency: float = lpkit.Field(0.0, ge=-2.0, le=2.0)

    repetition = lpkit.column(torch.float32, default=1.0)
    presence = lpkit.column(torch.float32)
    frequency = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        wanted = request.params
        neutral = (wanted.repetition, wanted.presence, wanted.frequency) == (1.0, 0.0, 0.0)
        return not neutral and super().admit(request)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = rows.tokens  # [n, W], -1 behind the end; a token that occurred twice is there twice, with equal values
        values, count = logits[ids], sequences.counts(ids, rows.is_output)
        repetition = self.repetition[rows].unsqueeze(1)
        values = (values / repetition).where(values > 0, values * repetition)
        values = values - count * self.frequency[rows].unsqueeze(1)
        logits[ids] = values - (count > 0) * self.presence[rows].unsqueeze(1)
