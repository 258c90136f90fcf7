"""Candidates that are plain functions of the logits, and the parameters of candidates that are processors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lpkit_conformance.hosts.steady import MEMORY, BatchChange, Candidate, SteadyBatch, User
from lpkit_conformance.settings.cases import Case


class Function(Candidate):
    """A function of the logits; ``ready`` makes it for each step's requests, untimed."""

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
    """``SamplingParams`` of requests that use a processor, and of the others."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._case = Case(dict(fields))
        self._other = Case({"temperature": 1.0})

    def __call__(self, uses: User) -> Any:
        # One object per request, as in a server.
        return self._case.params() if uses else self._other.params()

    @property
    def fields(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self._case.fields))


def floors() -> list[Candidate]:
    """The device's lower bounds: a pass that reads the logits, and a pass that reads and writes them."""
    # Both are vectorized on every device, and need almost no memory.
    read = Function("one read (amax)", lambda steady: lambda logits: logits.amax(-1), 0.0, "floor")
    write = Function("one read and write (mul_)", lambda steady: lambda logits: logits.mul_(1.0), 0.0, "floor")
    return [read, write]
