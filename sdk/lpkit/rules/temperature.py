"""A temperature that follows the model: dynamic temperature, and smoothing of the logits (kalomaze; koboldcpp,
text-generation-webui).

Dynamic temperature divides by a number between `low` and `high`, the higher the more undecided the model is:
``low + (high - low) * (H / ln(count)) ** exponent``, with the entropy H and the number of tokens that are not masked.
Smoothing then replaces each logit's distance d <= 0 from the highest by ``-factor * (k * d**2 - s * d**3)``, with
``k = (3 - curve) / 2`` and ``s = (curve - 1) / 2``. As in koboldcpp, both see what the request's temperature leaves.
"""

from __future__ import annotations

import torch

import lpkit
from lpkit import kernels


class Temperature(lpkit.LogitsProcessor):
    """Divide by a temperature that depends on the entropy, and bend the logits by `smoothing`."""

    stage = "sampling"  # the likeliest token stays the likeliest, so greedy requests need none of it
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        low: float = lpkit.Field(1.0, ge=0.01, le=100.0)
        high: float = lpkit.Field(1.0, ge=0.01, le=100.0)
        exponent: float = lpkit.Field(1.0, gt=0.0, le=10.0)
        smoothing: float = lpkit.Field(0.0, ge=0.0, le=100.0)
        curve: float = lpkit.Field(1.0, ge=1.0, le=3.0)  # beyond 3 the likeliest token would not stay the likeliest

        def check_together(self) -> None:
            if self.low > self.high:
                raise ValueError(f"{self.lpkit_prefix}low {self.low} is above {self.lpkit_prefix}high {self.high}")

    low = lpkit.column(torch.float32, default=1.0)
    high = lpkit.column(torch.float32, default=1.0)
    exponent = lpkit.column(torch.float32, default=1.0)
    smoothing = lpkit.column(torch.float32)
    curve = lpkit.column(torch.float32, default=1.0)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        wanted = request.params
        neutral = (wanted.low, wanted.high, wanted.smoothing) == (1.0, 1.0, 0.0)
        return not neutral and super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        columns = (self.low, self.high, self.exponent, self.smoothing, self.curve)
        return kernels.dynamic_temperature_(
            logits,
            rows.temperature,  # how much of the division by it is still to come differs between vLLM's runners
            *(column[rows].unsqueeze(1) for column in columns),
            by_entropy=self.low.used or self.high.used,
            smoothed=self.smoothing.used,
        )
