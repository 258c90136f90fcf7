"""DRY: a penalty for continuing a repetition, which grows with its length (p-e-w, text-generation-webui #5677).

A token that followed an earlier occurrence of the last `length` tokens loses `multiplier * base ** (length -
allowed_length)`, if `length` is at least `allowed_length`. Sequence breakers end every repetition and are never
penalized, as in the original and in llama.cpp.
"""

from __future__ import annotations

import lpkit
import torch
from lpkit import sequences

LARGEST = 1e38  # a penalty stays a number
EVERYTHING = 2**40  # tokens: more than any text has


class Dry(lpkit.LogitsProcessor):
    """Penalize tokens that would continue a repetition, by `dry_multiplier` and more."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params, prefix="dry_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        multiplier: float = lpkit.Field(gt=0.0, le=1000.0)  # no default: a request without it is unaffected
        base: float = lpkit.Field(1.75, ge=1.0, le=8.0)
        allowed_length: int = lpkit.Field(2, ge=1)
        range: int = lpkit.Field(0, ge=0)  # how many of the last tokens count; 0: all
        breakers: tuple[lpkit.TokenId, ...] = ()

    multiplier = lpkit.column(torch.float32)
    base = lpkit.column(torch.float32)
    allowed_length = lpkit.column(torch.int64)
    range = lpkit.column(torch.int64)
    breakers = lpkit.token_set()

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        self.multiplier[slot] = wanted.multiplier
        self.base[slot] = wanted.base
        self.allowed_length[slot] = wanted.allowed_length
        self.range[slot] = wanted.range or EVERYTHING
        self.breakers[slot] = wanted.breakers
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        tokens = rows.tokens  # [n, W]
        # A repetition reaches back neither over a breaker, which stands for itself alone here, nor out of the range.
        itself = torch.arange(-2, -2 - tokens.shape[1], -1, device=tokens.device)
        text = torch.where(self.breakers.contains(rows, tokens), itself, tokens)
        length = sequences.match_lengths(text, rows.total_len, since=rows.total_len - self.range[rows])
        excess = length - self.allowed_length[rows].unsqueeze(1)
        # A token that followed several repetitions is penalized for the longest.
        ids, excess = sequences.largest_per_id(text, excess, limit=tokens.shape[1])
        penalty = self.multiplier[rows].unsqueeze(1) * self.base[rows].unsqueeze(1) ** excess
        logits[ids] = logits[ids] - penalty.clamp(max=LARGEST)
