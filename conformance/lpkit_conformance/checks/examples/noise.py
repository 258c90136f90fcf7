"""A portable processor that draws numbers and is right; its neighbours, ``LPnnn.sdk.diff``, make it wrong."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import rng


class Noise(lpkit.LogitsProcessor):
    """Add up to `noise` to each logit, by `noise_seed`, the position and the token."""

    history = "length"

    class Params(lpkit.Params):
        noise: float = lpkit.Field(gt=0.0, le=10.0)
        noise_seed: int = lpkit.Field(0, ge=0, lt=2**31)

    amount = lpkit.column(torch.float32)
    seed = lpkit.column(torch.int64)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.token_ids = torch.arange(self.vocab_size, device=self.device)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.amount[request.slot] = request.params.noise
        self.seed[request.slot] = request.params.noise_seed
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        seed, position = self.seed[rows].unsqueeze(1), rows.total_len.unsqueeze(1)
        noise = rng.uniform(seed, position, self.token_ids)
        return logits.addcmul_(noise, self.amount[rows].unsqueeze(1))
