"""Greenlist watermark: tokens that a keyed hash of the context selects are made more likely (arXiv 2301.10226).

The paper seeds a random permutation of the vocabulary; here each token is hashed separately, so a token is green with
probability `share`, independently of the others, and CPUs and GPUs agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import lpkit
import torch
from lpkit import kernels, rng

LONGEST_CONTEXT = 8


@dataclass(frozen=True)
class Detection:
    """Green tokens of a text: `green` of `scored`, and their significance."""

    green: int
    scored: int
    z: float  # standard deviations above what chance makes green
    p_value: float  # how likely chance alone is to get this far


class GreenlistWatermark(lpkit.LogitsProcessor):
    """Add `greenlist_bias` to the logits of the `greenlist_share` of tokens that key and context select."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params, prefix="greenlist_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        key: int  # no default: a request without it is unaffected
        share: float = lpkit.Field(0.25, gt=0.0, lt=1.0)
        bias: float = lpkit.Field(2.0, gt=0.0, le=100.0)
        context: int = lpkit.Field(1, ge=1, le=LONGEST_CONTEXT)

    key = lpkit.column(torch.int64)
    limit = lpkit.column(torch.int32)
    bias = lpkit.column(torch.float32)
    context = lpkit.column(torch.int64, default=1)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.limit[request.slot] = green_limit(request.params.share)
        return super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        seed = rng.context_seeds(rows.tokens, rows.total_len, self.context[rows], self.key[rows], LONGEST_CONTEXT)
        return kernels.add_where_hashed_(logits, seed, self.limit[rows].unsqueeze(1), self.bias[rows].unsqueeze(1))

    @staticmethod
    def detect(token_ids: Sequence[int], *, key: int, share: float = 0.25, context: int = 1) -> Detection:
        """Test a text for the watermark of `key`; each pair of context and token counts once."""
        # The tokens before, and the token.
        pairs = {tuple(token_ids[i : i + context + 1]) for i in range(len(token_ids) - context)}
        if not pairs:
            return Detection(0, 0, 0.0, 1.0)
        windows = torch.tensor(sorted(pairs))
        whole = torch.full((len(windows),), context)
        seed = rng.context_seeds(windows[:, :-1], whole, whole, torch.tensor(key), context)
        green = int(is_green(seed, windows[:, -1:].to(torch.int32), torch.tensor(green_limit(share))).sum())
        scored = len(windows)
        z = (green - share * scored) / math.sqrt(scored * share * (1 - share))
        return Detection(green, scored, z, math.erfc(z / math.sqrt(2)) / 2)


def green_limit(share: float) -> int:
    """The signed 32-bit number below which that share of them lies."""
    return int(share * 2**32) - 2**31


def is_green(seed: torch.Tensor, ids: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Mask of the int32 `ids` that the seeds select."""
    return rng.mix32_(seed ^ ids) < limit
