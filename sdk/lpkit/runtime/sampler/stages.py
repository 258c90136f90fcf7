"""The samplers' built-in stages as functions of logits, computed as in vLLM.

``logits`` is float32 ``[n, vocab]`` and changed in place; per-row options are ``[n]`` on the same device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lpkit.sampling_params import GREEDY_EPSILON


def write_tokens(
    logits: torch.Tensor, rows: Sequence[int], ids: Sequence[int], value: float = -math.inf
) -> torch.Tensor:
    """Write ``value`` for each pair (``rows[i]``, ``ids[i]``)."""
    if rows:
        place = torch.tensor([list(rows), list(ids)], dtype=torch.int64).to(logits.device)
        logits[place[0], place[1]] = value
    return logits


def token_counts(lists: Sequence[Sequence[int]], vocab_size: int, device: torch.device) -> torch.Tensor:
    """Count each token in each list, int64 ``[n, vocab]``; ids outside the vocabulary do not count."""
    width = max((len(ids) for ids in lists), default=0)
    padded = torch.tensor([[*ids, *[-1] * (width - len(ids))] for ids in lists], dtype=torch.int64)
    padded = padded.reshape(len(lists), width).to(device)
    padded = torch.where((padded < 0) | (padded >= vocab_size), vocab_size, padded)
    counts = torch.zeros(len(lists), vocab_size + 1, dtype=torch.int64, device=device)
    counts.scatter_add_(1, padded, torch.ones_like(padded))
    return counts[:, :vocab_size]


def apply_penalties(
    logits: torch.Tensor,
    prompt_mask: torch.Tensor,
    output_counts: torch.Tensor,
    repetition: torch.Tensor,
    frequency: torch.Tensor,
    presence: torch.Tensor,
) -> torch.Tensor:
    """Apply repetition over prompt and output, then frequency, then presence over the output only.

    ``prompt_mask`` (bool) and ``output_counts`` are ``[n, vocab]``.
    """
    in_output = output_counts > 0
    factor = torch.where(prompt_mask | in_output, repetition.unsqueeze(1), 1.0)
    logits.copy_(torch.where(logits > 0, logits / factor, logits * factor))
    logits -= frequency.unsqueeze(1) * output_counts
    logits -= presence.unsqueeze(1) * in_output
    return logits


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Divide by the temperature; divide greedy rows by 1."""
    return logits.div_(torch.where(temperature < GREEDY_EPSILON, 1.0, temperature).unsqueeze(1))


def min_p_of_probabilities(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Apply V1's min-p: drop tokens with a probability below ``min_p`` times the highest."""
    probabilities = logits.softmax(-1)
    floor = probabilities.amax(-1, keepdim=True) * min_p.unsqueeze(1)
    return logits.masked_fill_(probabilities < floor, -math.inf)


def min_p_of_logits(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Apply V2's min-p: the same rule on logits, ``max + log(min_p)``; 0 disables it for a row."""
    floor = logits.amax(-1, keepdim=True) + min_p.log().unsqueeze(1)
    return logits.masked_fill_(logits < floor, -math.inf)


def apply_top_k_top_p(logits: torch.Tensor, top_k: torch.Tensor | None, top_p: torch.Tensor | None) -> torch.Tensor:
    """Keep the ``top_k`` best tokens, then the smallest set of them with probability ``top_p``.

    Tokens that tie with the k-th best are kept; None disables a stage, ``vocab`` and 1.0 disable it for a row.
    """
    if top_k is None and top_p is None:
        return logits
    ascending, ids = logits.sort(dim=-1)
    if top_k is not None:
        kth = ascending.gather(1, (logits.shape[1] - top_k.to(torch.int64)).unsqueeze(1))
        ascending.masked_fill_(ascending < kth, -math.inf)
    if top_p is not None:
        tail = ascending.softmax(-1).cumsum(-1) <= 1 - top_p.unsqueeze(1)
        tail[:, -1] = False
        ascending.masked_fill_(tail, -math.inf)
    return logits.scatter_(1, ids, ascending)


def sample(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Draw ``[n]`` int64 tokens from softmax(logits); ``noise`` is exponential ``[n, vocab]``."""
    return logits.softmax(-1).div_(noise).argmax(-1)
