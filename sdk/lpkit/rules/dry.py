"""DRY: a penalty for continuing a repetition, which grows with its length (p-e-w, text-generation-webui #5677).

A token that followed an earlier occurrence of the last `length` tokens loses `multiplier * base ** (length -
allowed_length)`, if `length` is at least `allowed_length`. Sequence breakers end every repetition and are never
penalized, as in the original and in llama.cpp.
"""

from __future__ import annotations

import math
import operator
from itertools import accumulate, repeat
from typing import Annotated

import torch

import lpkit
from lpkit import sequences
from lpkit.rules import EVERYTHING

LARGEST = 1e38  # a penalty stays a number
LONGEST = 1024  # excess beyond which a penalty grows no more


class Dry(lpkit.LogitsProcessor):
    """Penalize tokens that would continue a repetition, by `multiplier` and more."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        multiplier: float = lpkit.Field(gt=0.0, le=1000.0)  # no default: a request without it is unaffected
        base: float = lpkit.Field(1.75, ge=1.0, le=8.0)
        allowed_length: int = lpkit.Field(2, ge=1)
        range: int = lpkit.Field(0, ge=0)  # how many of the last tokens count; 0: all
        breakers: Annotated[lpkit.TokenIdsOf, lpkit.WordForms(several="skip")] = ()

    penalties = lpkit.ragged(torch.float32, fill=LARGEST, limit=LONGEST)  # by excess over the allowed length
    allowed_length = lpkit.column(torch.int64)
    range = lpkit.column(torch.int64)
    breakers = lpkit.token_set()

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        self.penalties[slot] = penalties(wanted.multiplier, wanted.base)
        self.allowed_length[slot] = wanted.allowed_length
        self.range[slot] = wanted.range or EVERYTHING
        self.breakers[slot] = wanted.breakers
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        # A repetition reaches back neither over a breaker nor out of the range.
        breaks = self.breakers.contains(rows, rows.tokens)
        length = sequences.match_lengths(rows.tokens, rows.total_len, rows.total_len - self.range[rows], breaks)
        excess = length - self.allowed_length[rows].unsqueeze(1)
        # A token that followed several repetitions is penalized for the longest.
        ids, excess = sequences.largest_per_id(rows.tokens.masked_fill(breaks, -1), excess)
        logits[ids] = logits[ids] - self.penalties.at(rows, excess)


def penalties(multiplier: float, base: float) -> list[float]:
    """Penalties of repetitions by their excess over the allowed length, up to the largest."""
    count = LONGEST if base == 1.0 else min(LONGEST, 1 + int(math.log(LARGEST / multiplier, base)))
    return list(accumulate(repeat(base, count - 1), operator.mul, initial=multiplier))
