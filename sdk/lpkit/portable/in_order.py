"""Callables that keep state from call to call, called once per position whatever the engine does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class InOrder:
    """One request's callable, made anew and called for the positions before where the engine jumps.

    vLLM calls more often than it keeps tokens (unfinished prefills, rejected drafts), and not from the start for a
    resumed request. Calls that make up for it get logits that are discarded, so state that follows from scores, not
    from tokens, is lost where the engine jumps. What was masked stays masked, and a row is never left without a token.

    Args:
        make: a fresh ``(prompt_ids, output_ids, logits)``; it edits in place, or returns new logits.
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
    """The result of a call, in which what was masked is masked still, and a token is left.

    Args:
        call: edits in place and returns None, or returns new logits.
        prompt_ids, output_ids, logits: its arguments.
    """
    before = logits.clone()
    edited = call(prompt_ids, output_ids, logits)
    edited = logits if edited is None else edited.to(logits.dtype)
    edited = edited.masked_fill((before == -torch.inf) | edited.isnan(), -torch.inf)
    return torch.where((edited > -torch.inf).any(), edited, before)
