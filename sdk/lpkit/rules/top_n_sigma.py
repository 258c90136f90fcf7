"""Top-n-sigma sampling: a token stays if its logit is within n standard deviations of the highest (arXiv 2411.07641).

Noise makes up most of a model's logits and is roughly normal; what the model means stands out above it. Dividing by
the temperature scales the distance and the deviation equally, so the same tokens stay at every temperature.
"""

from __future__ import annotations

import torch

import lpkit
from lpkit import kernels


class TopNSigma(lpkit.LogitsProcessor):
    """Mask tokens more than `n` standard deviations below the likeliest one."""

    stage = "sampling"  # what is sampled from; the likeliest token always stays, so greedy requests need none of it
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        n: float = lpkit.Field(ge=0.0, le=100.0)  # no default: a request without it is unaffected

    n = lpkit.column(torch.float64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.mask_deviations_below_top_(logits, self.n[rows].unsqueeze(1))  # masked tokens do not count
