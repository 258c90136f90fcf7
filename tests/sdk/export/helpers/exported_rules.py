"""Two rules to export: one on the history, one without."""

from __future__ import annotations

import lpkit
import torch

VOCAB = 40


class Counts(lpkit.LogitsProcessor):
    """Takes ``strength`` from each token for each time that it was generated."""

    history = "tokens"

    class Params(lpkit.Params, prefix="counts_"):
        strength: float

    strength = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = torch.where(rows.is_output, rows.tokens, VOCAB)
        counts = torch.zeros(rows.n, VOCAB + 1).scatter_add_(1, ids, torch.ones(ids.shape))[:, :VOCAB]
        return logits - counts * self.strength[rows].unsqueeze(1)


def counted(row: torch.Tensor, outputs: list[int], strength: float) -> torch.Tensor:
    """Return the result of :class:`Counts` for the logits ``[vocab]`` of a request."""
    return row - strength * torch.bincount(torch.tensor(outputs, dtype=torch.int64), minlength=VOCAB)


class Allowed(lpkit.LogitsProcessor):
    """Leaves one token."""

    class Params(lpkit.Params, prefix="only_"):
        ids: tuple[lpkit.TokenId, ...]

    ids = lpkit.token_set()

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return self.ids.keep_only_(logits, rows)
