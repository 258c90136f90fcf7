"""Verification of drafts on V2: which are accepted, and the token behind the last accepted one."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Verified(NamedTuple):
    """What became of the drafts of each request.

    Attributes:
        accepted: ``[n]`` drafts accepted; they are the first ones.
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

    A draft ``x`` is accepted with probability ``min(1, target(x) / proposed(x))``. In place of the first rejected one,
    a token is sampled from ``max(target - proposed, 0)``, normalised; behind all drafts, and at a placeholder of -1,
    from the target. Tokens then have the target's distribution, whatever the drafter proposes.

    Args:
        logits: ``[rows, vocab]`` processed and divided by the temperature. A request has one row per draft and one
            more, next to each other.
        drafts: ``[rows]`` the draft that each row judges; whatever it is in a request's last row.
        proposed: ``[rows, vocab]`` the probabilities that each row's draft was drawn from; one-hot for a drafter that
            has none, as n-gram.
        starts: ``[n]`` first row of each request.
        counts: ``[n]`` drafts of each request.
        uniform: ``[rows]`` random numbers in (0, 1).
        choice: ``[n]`` random numbers in [0, 1), which choose the sampled tokens.
        accept_rate: accept each draft with this probability instead, whatever the target says: vLLM's ``synthetic``
            method, which changes the distribution.

    Returns:
        How many drafts of each request are accepted, and the token behind them.
    """
    known = drafts.clamp(min=0).unsqueeze(1)
    target = logits.softmax(-1)
    if accept_rate is None:
        passes = target.gather(1, known) > uniform.unsqueeze(1) * proposed.gather(1, known)
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
    # Equal distributions leave nothing but rounding; what is rejected then is as good from the target.
    rejected &= residual.sum(-1) > 0
    final = torch.where(rejected.unsqueeze(1), residual, final)
    sums = final.cumsum(-1)
    below = (choice.clamp(max=1 - 2.0**-20) * sums[:, -1]).unsqueeze(1)
    return Verified(accepted, torch.searchsorted(sums, below, right=True).squeeze(1))
