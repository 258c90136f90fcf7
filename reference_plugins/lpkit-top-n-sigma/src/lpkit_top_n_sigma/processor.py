"""Top-n-sigma sampling: a token stays if its logit is within n standard deviations of the highest (arXiv 2411.07641).

Noise makes up most of a model's logits and is roughly normal; what the model means stands out above it. Dividing by
the temperature scales the distance and the deviation alike, so the same tokens stay at every temperature.
"""

from __future__ import annotations

import math

import lpkit
import torch

CHUNK = 16384  # tokens looked at together: the intermediate results stay small


class TopNSigma(lpkit.LogitsProcessor):
    """Mask tokens more than `top_n_sigma` standard deviations below the likeliest one."""

    stage = "sampling"  # what is sampled from; the likeliest token always stays, so greedy requests need none of it
    history = "none"

    # The prefix is the whole key: `top_n_sigmas` is refused as a mistake.
    class Params(lpkit.Params, prefix="top_n_sigma"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        n: float = lpkit.Field(alias="top_n_sigma", ge=0.0, le=100.0)  # no default: without it a request is left alone

    n = lpkit.column(torch.float64)

    def admit(self, request: lpkit.Request) -> bool:
        self.n[request.slot] = request.params.n
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        highest = logits.amax(dim=-1, keepdim=True)  # [n, 1]
        # Sums of distances to the highest logit. Masked tokens are no part of the distribution: they add 0.
        count, total, squares = torch.zeros(3, rows.n, 1, dtype=torch.float64, device=logits.device)
        for chunk in torch.split(logits, CHUNK, dim=1):
            below = (highest - chunk).nan_to_num_(nan=0.0, posinf=0.0)
            total += below.sum(dim=1, keepdim=True)
            squares += below.square_().sum(dim=1, keepdim=True)
            finite = (chunk > -math.inf).view(torch.uint8)  # summing bools would make them int64 first
            count += finite.sum(dim=1, keepdim=True, dtype=torch.int32)
        deviation = (squares / count - (total / count).square()).clamp(min=0.0).sqrt()
        lowest = highest - (self.n[rows].unsqueeze(1) * deviation).to(logits.dtype)
        return logits.masked_fill_(logits < lowest, -math.inf)
