"""Logit bias: numbers added to the logits of chosen tokens (`logit_bias` of the OpenAI API)."""

from __future__ import annotations

from typing import Annotated

import torch

import lpkit

LIMIT = 1024  # tokens per request


class LogitBias(lpkit.LogitsProcessor):
    """Add `values` to the logits of `ids`."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field(min_length=1, max_length=LIMIT)
        values: tuple[Annotated[float, lpkit.Field(ge=-100.0, le=100.0)], ...]

        def check_together(self) -> None:
            if len(self.ids) != len(self.values):
                raise ValueError(
                    f"{self.lpkit_prefix}ids and {self.lpkit_prefix}values differ in length: {len(self.ids)} and "
                    f"{len(self.values)}"
                )
            if len(set(self.ids)) != len(self.ids):
                raise ValueError(f"{self.lpkit_prefix}ids: a token id occurs twice")

    ids = lpkit.ragged(torch.int64, limit=LIMIT)
    values = lpkit.ragged(torch.float32, fill=0.0, limit=LIMIT)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]  # [n, k], -1 behind the end of each row's list
        logits[ids] = logits[ids] + self.values[rows]
