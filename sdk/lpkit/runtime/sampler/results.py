"""The result of a sampler, the run of its stages, and the check of a processor's result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch

Stage: TypeAlias = tuple[Any, Callable[[torch.Tensor], torch.Tensor]]
"""A built-in stage with its name, or a processor with its ``apply``."""

Observer: TypeAlias = Callable[[Any, torch.Tensor], None]
"""Called after each stage with its name, or the processor, and with the logits, which later stages edit."""


class Sampled(NamedTuple):
    """Result of a sampler.

    Attributes:
        token_ids: int64 ``[n]``.
        logits: float32 ``[n, vocab]`` from which the token was chosen. In a mixed batch on V1, the rows of greedy
            requests have been through the sampling stages, which did not choose their token.
    """

    token_ids: torch.Tensor
    logits: torch.Tensor


def run(stages: Iterable[Stage], logits: torch.Tensor, observer: Observer | None) -> torch.Tensor:
    """Run stages in their order and return the logits after the last one."""
    for name, stage in stages:
        after = stage(logits)
        logits = after if isinstance(name, str) else checked(name, logits, after)
        if observer is not None:
            observer(name, logits)
    return logits


def checked(processor: Any, before: torch.Tensor, after: Any) -> torch.Tensor:
    """Return ``after`` if it can replace ``before`` as logits.

    Raises:
        TypeError: ``after`` is not a tensor, or its shape, dtype or device differs: an engine would fail the step.
    """
    name = type(processor).__name__
    if not isinstance(after, torch.Tensor):
        raise TypeError(f"{name}.apply returned {type(after).__name__} instead of the logits")
    for what in ("shape", "dtype", "device"):
        expected, got = getattr(before, what), getattr(after, what)
        if expected != got:
            raise TypeError(f"{name}.apply returned logits of {what} {got} instead of {expected}")
    return after
