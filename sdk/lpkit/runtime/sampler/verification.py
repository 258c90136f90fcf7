"""Verification of drafts on V2: the accepted drafts, and the token behind the last accepted draft."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Verified(NamedTuple):
    """Result of verifying each request's drafts.

    Attributes:
        accepted: ``[n]`` number of accepted drafts, counted from the first.
        token_ids: ``[n]`` the token behind the last accepted draft, which is always sampled.
    """

    accepted: torch.Tensor
    token_ids: torch.Tensor


def verify_drafts(
    logits: torch.Tensor,
    drafts: torch.Tensor,
    proposed: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    *,
    uniform: torch.Tensor,
    choice: torch.Tensor,
    accept_rate: float | None = None,
) -> Verified:
    """Accept and reject drafts by the rejection sampling that vLLM calls ``standard``.

    A draft ``x`` is accepted with probability ``min(1, target(x) / proposed(x))``. Instead of the first rejected
    draft, a token is sampled from ``max(target - proposed, 0)``, normalised. Behind all drafts, and at a placeholder of
    -1, a token is sampled from the target. Tokens then have the target's distribution, whatever the drafter proposes.

    Args:
        logits: ``[rows, vocab]`` processed and divided by the temperature. A request has one row per draft and one
            more, next to each other.
        drafts: ``[rows]`` the draft that each row judges; ignored in a request's last row.
        proposed: ``[rows, vocab]`` the probabilities that each row's draft was drawn from; one-hot for a drafter
            without probabilities, e.g. n-gram.
        starts: ``[n]`` first row of each request.
        counts: ``[n]`` drafts of each request.
        uniform: ``[rows]`` random numbers in (0, 1).
        choice: ``[n]`` random numbers in [0, 1), that choose the sampled tokens.
        accept_rate: accept each draft with this probability instead, ignoring the target: vLLM's ``synthetic`` method,
            which changes the distribution.

    Returns:
        The number of accepted drafts of each request, and the token behind them.
    """
    ids = drafts.clamp(min=0).unsqueeze(1)
    target = logits.softmax(-1)
    if accept_rate is None:
        passes = target.gather(1, ids) > uniform.unsqueeze(1) * proposed.gather(1, ids)
    else:
        passes = uniform.unsqueeze(1) < accept_rate
    passes = passes.squeeze(1) & (drafts >= 0)
    widest = torch.arange(int(counts.max()) if len(counts) else 0, device=logits.device)
    rows = (starts.unsqueeze(1) + widest).clamp(max=max(len(drafts) - 1, 0))
    accepted = (passes[rows] & (widest < counts.unsqueeze(1))).long().cumprod(1).sum(1)
    last = starts + accepted
    rejected = (accepted < counts) & (drafts[last] >= 0)
    final = target[last]
    residual = (final - proposed[last]).clamp(min=0)
    # Equal distributions differ only by rounding; then the token is drawn from the target.
    rejected &= residual.sum(-1) > 0
    final = torch.where(rejected.unsqueeze(1), residual, final)
    sums = final.cumsum(-1)
    below = (choice.clamp(max=1 - 2.0**-20) * sums[:, -1]).unsqueeze(1)
    return Verified(accepted, torch.searchsorted(sums, below, right=True).squeeze(1))
