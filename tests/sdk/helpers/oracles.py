"""Comparisons of reference plugins with their oracles."""

from __future__ import annotations

from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]


def agree(
    ours: torch.Tensor,
    theirs: torch.Tensor,
    oracle: str,
    of: str = "logits",
    within: float = 0.0,
    relative: bool = False,
) -> None:
    """Assert that a plugin computes what its oracle does.

    Args:
        oracle, of: the oracle and what is compared, for the message.
        within: the most that a value may differ by; where one is infinite, so is the other.
        relative: values above 1 are compared by their ratio.
    """
    assert ours.numel(), "nothing is compared"
    difference = largest(ours, theirs, relative)
    assert difference <= within, f"{of}: {difference} away from {oracle}"


def largest(ours: torch.Tensor, theirs: torch.Tensor, relative: bool = False) -> float:
    """The largest difference of two tensors; not a number, or infinite, where only one of them is."""
    assert ours.shape == theirs.shape
    other = ours != theirs  # equal infinities have no difference
    if ours.dtype == torch.bool:
        return float(other.sum())
    apart = (ours.double() - theirs.double()).abs()[other]
    if relative:
        apart = apart / theirs.double().abs()[other].clamp(min=1.0)
    return float(apart.max()) if apart.numel() else 0.0
