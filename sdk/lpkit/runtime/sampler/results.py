"""What a sampler gives back, and whether what a processor gave back will do."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class Sampled(NamedTuple):
    """Outcome of a sampler.

    Attributes:
        token_ids: int64 ``[n]``.
        logits: float32 ``[n, vocab]`` as they were when the token was chosen. On V1 in a mixed batch the rows of
            greedy requests have been through the sampling stages too, which did not choose their token.
    """

    token_ids: torch.Tensor
    logits: torch.Tensor


def checked(processor: Any, before: torch.Tensor, after: Any) -> torch.Tensor:
    """``after`` if it can replace ``before`` as logits.

    Raises:
        TypeError: if it is not a tensor, or its shape, dtype or device differs: an engine would fail the step.
    """
    name = type(processor).__name__
    if not isinstance(after, torch.Tensor):
        raise TypeError(f"{name}.apply returned {type(after).__name__} instead of the logits")
    for what in ("shape", "dtype", "device"):
        expected, got = getattr(before, what), getattr(after, what)
        if expected != got:
            raise TypeError(f"{name}.apply returned logits of {what} {got} instead of {expected}")
    return after
