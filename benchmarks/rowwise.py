"""Rules as request-level callables, the way they are usually written: one row at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

Row = Callable[[list[int], torch.Tensor], torch.Tensor]
Arguments = Mapping[str, Any]


def min_p(args: Arguments) -> Row:
    """Keep what is at least so likely as ``min_p_threshold`` times the likeliest."""
    threshold = math.log(args["min_p_threshold"])
    return lambda output, logits: logits.masked_fill_(logits < logits.max() + threshold, -math.inf)


def top_n_sigma(args: Arguments) -> Row:
    """Keep what is within so many standard deviations of the highest logit."""
    n = args["top_n_sigma"]
    return lambda output, logits: logits.masked_fill_(logits < logits.max() - n * logits.std(correction=0), -math.inf)


def allowed_tokens(args: Arguments) -> Row:
    """Mask all but a list."""
    ids = torch.tensor(args["allowed_tokens"])

    def only(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        masked = torch.full_like(logits, -math.inf)
        masked[ids] = logits[ids]
        return masked

    return only


def target_token(args: Arguments) -> Row:
    """Mask all but one."""
    return allowed_tokens({"allowed_tokens": [args["target_token"]]})


def logit_bias(args: Arguments) -> Row:
    """Add to chosen tokens."""
    ids, values = torch.tensor(args["logit_bias_ids"]), torch.tensor(args["logit_bias_values"])
    return lambda output, logits: logits.index_add_(0, ids.to(logits.device), values.to(logits.device))


def penalties(args: Arguments) -> Row:
    """Presence and frequency penalties, from the output's counts."""
    presence, frequency = args.get("penalties_presence", 0.0), args.get("penalties_frequency", 0.0)

    def penalize(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        ids, counts = torch.unique(torch.tensor(output, device=logits.device), return_counts=True)
        logits[ids] -= presence + frequency * counts
        return logits

    return penalize


def xtc(args: Arguments) -> Row:
    """Drop the likely tokens but the least likely of them; the coin is always heads."""
    threshold = args.get("xtc_threshold", 0.1)

    def exclude(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        shares = logits.softmax(-1)
        least = torch.where(shares >= threshold, shares, math.inf).amin()
        return logits.masked_fill_(shares > least, -math.inf)

    return exclude
