"""Forced sequence: the n-th output token is the n-th of a list, then an end token if there is one.

A function of the output's length alone, so a preempted request resumes in mid-sequence.
"""

from __future__ import annotations

import math

import lpkit
import torch

LIMIT = 1024  # tokens per request


class ForcedSequence(lpkit.LogitsProcessor):
    """Force the tokens of `forced_sequence`, then `forced_sequence_end`."""

    stage = "logits"  # greedy requests too
    history = "length"

    # The prefix is the whole key, so that both parameters read well.
    class Params(lpkit.Params, prefix="forced_sequence"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field(alias="forced_sequence", min_length=1, max_length=LIMIT)
        end: lpkit.TokenId | None = lpkit.Field(None, alias="forced_sequence_end")

    ids = lpkit.ragged(torch.int64, limit=LIMIT)
    length = lpkit.column(torch.int64)
    end = lpkit.column(torch.int64, default=-1)

    def admit(self, request: lpkit.Request) -> bool:
        self.ids[request.slot] = request.params.ids
        self.length[request.slot] = len(request.params.ids)
        if request.params.end is not None:
            self.end[request.slot] = request.params.end
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = self.ids[rows]
        due = ids.gather(1, rows.output_len.clamp(max=ids.shape[1] - 1).unsqueeze(1))
        due = torch.where(
            (rows.output_len < self.length[rows]).unsqueeze(1), due, self.end[rows].unsqueeze(1)
        )  # [n, 1]
        # A token that a grammar has masked stays masked: better one that the grammar allows than none at all.
        forced = (due >= 0) & (logits.gather(1, due.clamp(min=0)) > -math.inf)
        others = torch.arange(logits.shape[1], device=logits.device) != due  # [n, vocab]
        return logits.masked_fill_(others & forced, -math.inf)
