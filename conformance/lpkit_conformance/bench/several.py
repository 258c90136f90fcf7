"""Several processors in one V2 engine; every request uses all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lpkit.v2 import LogitsContext, LogitsProcRequestState

from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.hosts.steady import BatchChange, SteadyBatch


class OneEngine:
    """A V2 engine's processors, called as in a step; each class comes with the fields of a request that uses it."""

    def __init__(self, plugins: Sequence[tuple[Any, Mapping[str, Any]]], steady: SteadyBatch, device: torch.device):
        buffers = LogitsProcRequestState.from_request_state(steady.slots.state)
        config = steady.config(device)
        self._steady, self._device = steady, device
        self._processors = [cls(config, buffers) for cls, _ in plugins]
        self._parameters = [Parameters(fields) for _, fields in plugins]
        self._entered: list[tuple[int, list[Any]]] = []
        self._ctx: LogitsContext

    def prepare(self, change: BatchChange) -> None:
        """Prepare the engine's part of the step, without the processors' work."""
        self._entered = [(slot, [params(uses) for params in self._parameters]) for slot, uses in change.entered]
        self._ctx = self._steady.context(self._device)

    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """Make every call of a step to the processors."""
        for slot, asked in self._entered:
            for processor, params in zip(self._processors, asked, strict=True):
                processor.add_request(slot, params)
        for processor in self._processors:
            processor.apply_staged_writes()
        for processor in self._processors:
            logits = processor.apply(logits, self._ctx)
        return logits
