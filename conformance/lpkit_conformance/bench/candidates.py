"""What is measured besides processors on their hosts: plain functions of the logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lpkit_conformance.hosts.steady import MEMORY, BatchChange, Candidate, SteadyBatch, User
from lpkit_conformance.settings.cases import Case


class Function(Candidate):
    """A function of the logits; ``ready`` makes it anew for each step's requests, not timed."""

    def __init__(
        self,
        name: str,
        ready: Callable[[SteadyBatch], Callable[[torch.Tensor], Any]],
        memory: float = MEMORY,
        kind: str = "alternative",
    ) -> None:
        super().__init__(name)
        self.kind, self.memory = kind, memory
        self._ready = ready

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:
        self._apply = self._ready(steady)

    def apply(self, logits: torch.Tensor) -> Any:
        return self._apply(logits)


class Parameters:
    """``SamplingParams`` of requests that use a processor, and of those that do not."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._case = Case(dict(fields))
        self._other = Case({"temperature": 1.0})

    def __call__(self, uses: User) -> Any:
        # One object per request, as in a server.
        return self._case.params() if uses else self._other.params()

    @property
    def fields(self) -> dict[str, Any]:
        return copy.deepcopy(self._case.fields)


def floors() -> list[Candidate]:
    """What this device needs at least: one pass that reads the logits, and one that reads and writes them."""
    # Both are vectorized on every device, and neither needs memory worth mentioning.
    read = Function("one read (amax)", lambda steady: lambda logits: logits.amax(-1), 0.0, "floor")
    write = Function("one read and write (mul_)", lambda steady: lambda logits: logits.mul_(1.0), 0.0, "floor")
    return [read, write]
