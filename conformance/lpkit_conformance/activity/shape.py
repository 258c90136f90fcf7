"""The kind of a row's edit: coarse enough that rows of one rule agree, fine enough to tell rules apart."""

from __future__ import annotations

import math

import torch

Shape = tuple[int, ...]
"""Return how many logits were raised, lowered, masked and made NaN, each as a number of binary digits."""

UNTOUCHED: Shape = (0, 0, 0, 0)


def shapes(before: torch.Tensor, after: torch.Tensor) -> list[Shape]:
    """The kind of each row's edit."""
    masked = (after == -math.inf) & (before != -math.inf)
    counts = torch.stack(
        [(after > before).sum(1), ((after < before) & ~masked).sum(1), masked.sum(1), after.isnan().sum(1)], 1
    )
    return [tuple(count.bit_length() for count in row) for row in counts.tolist()]
