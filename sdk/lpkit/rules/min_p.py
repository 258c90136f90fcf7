"""Min-p sampling: a token stays if it is at least so many times as likely as the likeliest one (arXiv 2407.01082).

The probabilities never need to be computed: ``p_i >= threshold * p_max`` says of the logits, which the engine divides
by the temperature, that ``x_i >= x_max + temperature * ln(threshold)``.
"""

from __future__ import annotations

import math

import torch

import lpkit
from lpkit import kernels


class MinP(lpkit.LogitsProcessor):
    """Mask tokens less likely than `threshold` times the likeliest one."""

    stage = "sampling"  # what is sampled from; the likeliest token always stays, so greedy requests need none of it
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        threshold: float = lpkit.Field(ge=0.0, le=1.0)  # no default: a request without it is unaffected

    distance = lpkit.column(torch.float32)  # between logarithms of probabilities

    def admit(self, request: lpkit.Request[Params]) -> bool:
        threshold: float = request.params.threshold
        if threshold == 0.0:
            return False  # everything stays
        self.distance[request.slot] = -math.log(threshold)
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        # How much of the division by the temperature is still to come differs between vLLM's runners.
        return kernels.mask_far_below_top_(logits, self.distance[rows].unsqueeze(1), rows.temperature)
