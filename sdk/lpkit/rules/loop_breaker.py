"""Loop breaker: a reply that repeats one span over and over is led out of it, or ended.

A reply loops if its last `loop_tokens` or more tokens are one span, written at least `loop_times` times in a row. The
rule acts on nothing else, so unlike a penalty it leaves ordinary repetitions alone.
"""

from __future__ import annotations

import torch

import lpkit
from lpkit import kernels, sequences


class LoopBreaker(lpkit.LogitsProcessor):
    """In a loop, take `penalty` from the token that would go on with it, or leave `end` only."""

    stage = "logits"  # before penalties and temperature; greedy requests too, which loop most
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        times: int = lpkit.Field(ge=2, le=1000)  # no default: a request without it is unaffected
        tokens: int = lpkit.Field(64, ge=2)
        penalty: float = lpkit.Field(100.0, gt=0.0, le=1000.0)
        end: lpkit.TokenId | None = None

    times = lpkit.column(torch.int64)
    tokens = lpkit.column(torch.int64)
    added = lpkit.column(torch.float32)
    end = lpkit.column(torch.int64, default=-1)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        self.times[slot] = wanted.times
        self.tokens[slot] = wanted.tokens
        self.added[slot] = -0.0 if wanted.end is not None else -wanted.penalty
        self.end[slot] = -1 if wanted.end is None else wanted.end
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        times, least = self.times[rows], self.tokens[rows]
        token = sequences.next_in_loop(rows.tokens, rows.total_len, times, least, since=rows.prompt_len).unsqueeze(1)
        looping = token >= 0
        # Elsewhere -0.0 is added, which changes no bit.
        logits.scatter_add_(1, token.clamp(0), self.added[rows].unsqueeze(1).where(looping, -0.0))
        return kernels.keep_ids_(logits, self.end[rows].unsqueeze(1), where=looping)
