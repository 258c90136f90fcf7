"""Callables that keep state between calls, called exactly once per position whatever the engine does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class InOrder:
    """One request's callable. If the engine jumps, it is made again and replays the earlier positions.

    vLLM calls more often than it keeps tokens (unfinished prefills, rejected drafts), and starts in the middle for a
    resumed request. Replayed calls get logits that are discarded. So state that depends on scores, rather than tokens,
    is lost when the engine jumps. Masked tokens stay masked, and every row keeps a token.

    Args:
        make: makes a new ``(prompt_ids, output_ids, logits)`` callable, which edits in place or returns new logits.
    """

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self._make = make
        self._call = make()
        self._calls = 0

    def __call__(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if self._calls > len(output_ids):
            self._call, self._calls = self._make(), 0
        while self._calls < len(output_ids):
            self._call(prompt_ids, output_ids[: self._calls], torch.zeros_like(logits))
            self._calls += 1
        self._calls += 1
        return bounded(self._call, prompt_ids, output_ids, logits)


def bounded(
    call: Callable[..., Any], prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Call ``call``, keep masked tokens masked, and make sure that a token is left.

    Args:
        call: edits in place and returns None, or returns new logits.
        prompt_ids, output_ids, logits: its arguments.
    """
    before = logits.clone()
    edited = call(prompt_ids, output_ids, logits)
    edited = logits if edited is None else edited.to(logits.dtype)
    edited = edited.masked_fill((before == -torch.inf) | edited.isnan(), -torch.inf)
    return torch.where((edited > -torch.inf).any(), edited, before)
