"""Loop breaker: a reply that repeats one span over and over is led out of it, or ended.

A reply loops if its last `loop_tokens` or more tokens are one span, written at least `loop_times` times in a row. The
rule acts on nothing else, so unlike a penalty it leaves ordinary repetitions alone. An end of several tokens, such as
one that closes the reasoning, is forced from a loop on until it is complete.
"""

from __future__ import annotations

from typing import Annotated

import torch

import lpkit
from lpkit import kernels, sequences
from lpkit.portable.words import MarkerOf

LIMIT = 16  # tokens of the end


class LoopBreaker(lpkit.LogitsProcessor):
    """In a loop, take `penalty` from the token that would go on with it, or force `end`."""

    stage = "logits"  # before penalties and temperature; greedy requests too, which loop most
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        times: int = lpkit.Field(ge=2, le=1000)  # no default: a request without it is unaffected
        tokens: int = lpkit.Field(64, ge=2)
        penalty: float = lpkit.Field(100.0, gt=0.0, le=1000.0)
        end: Annotated[MarkerOf, lpkit.WordForms(special=True)] = lpkit.Field((), max_length=LIMIT)

    times = lpkit.column(torch.int64)
    tokens = lpkit.column(torch.int64)
    added = lpkit.column(torch.float32)
    end = lpkit.column(torch.int64, default=-1)  # its first token
    ending = lpkit.ragged(torch.int64, limit=LIMIT)  # all of it, if there are several

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        if wanted.end[:1] and wanted.end[0] in wanted.end[1:-1]:
            raise ValueError(f"{wanted.lpkit_prefix}end: its first token occurs again before its last")
        self.times[slot] = wanted.times
        self.tokens[slot] = wanted.tokens
        self.added[slot] = -0.0 if wanted.end else -wanted.penalty
        self.end[slot] = wanted.end[0] if wanted.end else -1
        self.ending[slot] = wanted.end if len(wanted.end) > 1 else ()
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        times, least = self.times[rows], self.tokens[rows]
        token = sequences.next_in_loop(rows.tokens, rows.total_len, times, least, since=rows.prompt_len).unsqueeze(1)
        looping, due = token >= 0, self.end[rows].unsqueeze(1)
        # Elsewhere -0.0 is added, which changes no bit.
        logits.scatter_add_(1, token.clamp(0), self.added[rows].unsqueeze(1).where(looping, -0.0))
        if self.ending.used:  # a loop stood where the text began to end
            written = sequences.begun(rows.tokens, rows.total_len, self.ending[rows], since=rows.prompt_len)
            before = sequences.next_in_loop(rows.tokens, rows.total_len - written, times, least, since=rows.prompt_len)
            on = ((written > 0) & (before >= 0)).unsqueeze(1)
            looping, due = looping | on, self.ending.at(rows, written.unsqueeze(1)).where(on, due)
        return kernels.keep_ids_(logits, due, where=looping)
