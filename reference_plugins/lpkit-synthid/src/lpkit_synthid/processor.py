"""SynthID-text: tournament sampling under a secret list of keys (Dathathri et al., Nature 634, 2024).

The hash is the one of transformers: n-gram by n-gram a linear congruential generator, whose lowest 16 bits choose from
a table of random bits. As a step of it multiplies by an odd number, all bits of one context and key are a stretch of
the table in another order, and a whole vocabulary's are read at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import lpkit
import torch
from lpkit import kernels, sequences

SIZE = 2**16  # of the table
MULTIPLIER = 6364136223846793005
INVERSE = pow(MULTIPLIER, -1, SIZE)
LONGEST_CONTEXT = 16
MOST_KEYS = 30


@dataclass(frozen=True)
class Detection:
    """Share of won bits in a text: `mean` and `weighted_mean` of the bits of `scored` tokens, 0.5 by chance."""

    scored: int
    mean: float
    weighted_mean: float  # the first keys count most, as they tell most
    z: float  # standard deviations of the weighted mean above chance
    p_value: float  # how likely chance alone is to get this far


class SynthId(lpkit.LogitsProcessor):
    """Sample as the winner of a tournament with one round for each of `synthid_keys` would be."""

    stage = "sampling"  # after temperature, as in transformers; not for greedy requests
    history = "tokens"

    class Params(lpkit.Params, prefix="synthid_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        # No default: a request without it is unaffected. pydantic's models have a method `keys`.
        depth_keys: tuple[int, ...] = lpkit.Field(alias="synthid_keys", min_length=1, max_length=MOST_KEYS)
        ngram_len: int = lpkit.Field(5, ge=2, le=LONGEST_CONTEXT + 1)
        context_history_size: int = lpkit.Field(1024, ge=0)
        skip_first_ngram_calls: bool = False

    key_shifts = lpkit.ragged(torch.int64, limit=MOST_KEYS)
    weights = lpkit.column(torch.int64, width=LONGEST_CONTEXT)
    ngram_len = lpkit.column(torch.int64)
    context_history_size = lpkit.column(torch.int64)
    skipped = lpkit.column(torch.int64)  # tokens of the output that are left alone

    @functools.cached_property
    def bits(self) -> torch.Tensor:
        """The table, for any shift."""
        return bits_by_shift(self.vocab_size, self.device)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        context = wanted.ngram_len - 1
        weights, offset = context_hash(context)
        self.weights[slot] = weights + [0] * (LONGEST_CONTEXT - context)
        self.key_shifts[slot] = [(offset + key_shift(key)) % SIZE for key in wanted.depth_keys]
        self.skipped[slot] = context if wanted.skip_first_ngram_calls else 0
        return super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        since = (rows.prompt_len + self.skipped[rows]).maximum(rows.total_len - self.context_history_size[rows])
        text = rows.tokens, rows.is_output, rows.total_len
        context = sequences.fresh_context(*text, self.weights[rows], self.ngram_len[rows], since)
        return kernels.tournament_(logits, rows.temperature, self.bits, context, self.key_shifts[rows])

    @staticmethod
    def detect(
        token_ids: Sequence[int],
        *,
        keys: Sequence[int],
        ngram_len: int = 5,
        context_history_size: int = 1024,
        eos_token_id: int | None = None,
    ) -> Detection:
        """Test a text for the watermark of `keys`; what follows `eos_token_id`, and repeated contexts, do not count."""
        ids = list(token_ids)
        ids = ids[: ids.index(eos_token_id)] if eos_token_id in ids else ids
        weights, offset = context_hash(ngram_len - 1)
        places: dict[tuple[int, ...], int] = {}
        starts = []
        for place in range(ngram_len - 1, len(ids)):
            context = tuple(ids[place - ngram_len + 1 : place])
            if place - places.get(context, -math.inf) > context_history_size:
                hashed = sum(weight * token for weight, token in zip(weights, reversed(context), strict=True))
                starts.append(hashed + offset + ids[place])
            places[context] = place
        if not starts:
            return Detection(0, 0.5, 0.5, 0.0, 1.0)
        shifts = torch.tensor([key_shift(key) for key in keys])
        bits = table()[(torch.tensor(starts).unsqueeze(1) + shifts) % SIZE].double()
        weighed = torch.linspace(10.0, 1.0, len(keys), dtype=torch.float64)
        weighed /= weighed.sum()
        weighted_mean = float((bits * weighed).sum(1).mean())
        z = (weighted_mean - 0.5) / (0.5 * float(weighed.norm()) / math.sqrt(len(starts)))
        return Detection(len(starts), float(bits.mean()), weighted_mean, z, math.erfc(z / math.sqrt(2)) / 2)


@functools.cache
def table() -> torch.Tensor:
    """transformers' `sampling_table` of 2**16 bits and seed 0, made on a CPU, in the order that ids are hashed to."""
    bits = torch.randint(0, 2, (SIZE,), generator=torch.Generator().manual_seed(0))
    return bits[torch.arange(SIZE) * (MULTIPLIER**2 % SIZE) % SIZE]


def context_hash(length: int) -> tuple[list[int], int]:
    """Factors of a context's tokens in its hash, the newest first, and the addend, modulo SIZE."""
    powers = [pow(MULTIPLIER, n, SIZE) for n in range(length + 1)]
    return powers[1:], sum(powers) % SIZE


def key_shift(key: int) -> int:
    """Offset in the table of this key's stretch, hashed after context and token."""
    return (key * INVERSE + (MULTIPLIER + 1) * INVERSE**2) % SIZE


@functools.cache
def bits_by_shift(vocab_size: int, device: torch.device) -> torch.Tensor:
    """For shift i the tokens' bits begin at i; the last `vocab_size` ones are zeros, with which nothing changes."""
    length = SIZE + vocab_size
    bits = table().float().repeat(-(-length // SIZE))[:length]
    return torch.cat((bits, torch.zeros(vocab_size))).to(device)
