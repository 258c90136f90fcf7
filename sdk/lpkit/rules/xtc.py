"""XTC, exclude top choices: sometimes all likely tokens but the least likely are dropped (p-e-w, text-generation-webui
#6335).

With probability P, of the tokens with a probability of at least t only the least likely stays. Tokens that tie with it
stay too. The coin is a hash of (seed, position): no state, and the same on every runner, rank and device.
"""

from __future__ import annotations

import math

import torch

import lpkit
from lpkit import kernels, rng


class Xtc(lpkit.LogitsProcessor):
    """With `probability`, drop the tokens above `threshold` but for the least likely of them."""

    stage = "sampling"  # it takes the likeliest token away on purpose, but never from a greedy request
    history = "length"

    class Params(lpkit.Params):
        """A request's settings."""

        probability: float = lpkit.Field(ge=0.0, le=1.0)  # no default: a request without it is unaffected
        threshold: float = lpkit.Field(0.1, gt=0.0, le=1.0)
        seed: int | None = None
        keep: tuple[lpkit.TokenId, ...] = lpkit.Field((), max_length=64)

    probability = lpkit.column(torch.float32)
    log_threshold = lpkit.column(torch.float32)
    seed = lpkit.column(torch.int64)
    keep = lpkit.ragged(torch.int64, limit=64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        if wanted.probability == 0.0 or wanted.threshold > 0.5:
            return False  # no two tokens can be above a half
        self.probability[slot] = wanted.probability
        self.log_threshold[slot] = math.log(wanted.threshold)
        self.seed[slot] = (request.sampling_params.seed or 0) if wanted.seed is None else wanted.seed
        self.keep[slot] = wanted.keep
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        heads = rng.uniform(self.seed[rows], rows.total_len) < self.probability[rows]
        # How much of the division by the temperature is still to come differs between vLLM's runners.
        log_threshold = self.log_threshold[rows].unsqueeze(1)
        return kernels.exclude_top_choices_(
            logits, rows.temperature, log_threshold, self.keep[rows], where=heads.unsqueeze(1)
        )
