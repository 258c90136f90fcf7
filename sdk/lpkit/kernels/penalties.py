"""Penalties of earlier tokens."""

from __future__ import annotations

import torch

from lpkit.kernels.recording import StandIn


def penalized(
    values: torch.Tensor, count: torch.Tensor, repetition: torch.Tensor, presence: torch.Tensor, frequency: torch.Tensor
) -> torch.Tensor:
    """Lower the logits of earlier tokens: repetition (CTRL, arXiv 1909.05858), presence and frequency (OpenAI API).

    Args:
        values: float32 ``[n, k]``, logits of tokens that occurred.
        count: int64 ``[n, k]``, occurrences of each in the output.
        repetition: float32 ``[n]``, divides positive logits and multiplies others.
        presence: float32 ``[n]``, subtracted if a token occurred in the output.
        frequency: float32 ``[n]``, subtracted for each occurrence.

    Returns:
        float32 ``[n, k]``.
    """
    if isinstance(values, StandIn):
        return values.kernels.penalized(values, count, repetition, presence, frequency)
    repetition, presence, frequency = (item.unsqueeze(1) for item in (repetition, presence, frequency))
    lowered = torch.where(values > 0, values / repetition, values * repetition)
    return lowered - frequency * count - presence * (count > 0)
