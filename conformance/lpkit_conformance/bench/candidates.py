"""What is measured: processors on either host, and plain functions of the logits."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lpkit.runtime import make_config

from lpkit_conformance.bench.steady_batch import BatchChange, SteadyBatch, User, update_with
from lpkit_conformance.hosts.calls import calling, checked
from lpkit_conformance.settings.cases import Case

MEMORY = 3.0
"""Tensors of the logits' size that a candidate may need beside its input, if it does not say otherwise."""


class Candidate(ABC):
    """Something that edits a batch of logits, once per step.

    Attributes:
        kind: ``target``, ``alternative`` or ``floor``.
        host: ``v1``, ``v2`` or empty.
        memory: tensors of the logits' size that it may need beside its input.
    """

    kind = "alternative"
    host = ""
    memory = MEMORY

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:  # noqa: B027 - most candidates need nothing
        """What the engine would have ready at this step; not timed."""

    def follow(self) -> None:  # noqa: B027
        """The bookkeeping of the step that was prepared."""

    def rest(self) -> None:  # noqa: B027
        """The bookkeeping of a step that changes nothing."""

    @property
    def keeps_books(self) -> bool:
        """Whether the two methods above do anything."""
        return False

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> Any:
        """One step's work on the logits."""


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


class _Processor(Candidate):
    """A class with one of vLLM's interfaces."""

    def __init__(self, name: str, cls: Any, parameters: Parameters, device: torch.device, kind: str = "target") -> None:
        super().__init__(name)
        self.kind, self._device = kind, device
        self._cls, self._parameters = cls, parameters
        self._processor: Any = None

    @property
    def keeps_books(self) -> bool:
        return True

    def _config(self, steady: SteadyBatch) -> Any:
        return make_config(
            max_num_seqs=steady.size, vocab_size=steady.vocab, max_model_len=steady.max_model_len, device=self._device
        )


class V1Candidate(_Processor):
    """On V1: ``update_state`` and ``apply``."""

    host = "v1"

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:
        if self._processor is None:
            with calling("__init__"):
                self._processor = self._cls(self._config(steady), self._device, self._device.type == "cuda")
        self._update = update_with(change.update, self._parameters)

    def follow(self) -> None:
        with calling("update_state"):
            self._processor.update_state(self._update)

    def rest(self) -> None:
        self._processor.update_state(None)

    def apply(self, logits: torch.Tensor) -> Any:
        with calling("apply"):
            result = self._processor.apply(logits)
        return checked(result, logits)


class V2Candidate(_Processor):
    """On V2: ``add_request`` for each new request, ``apply_staged_writes`` and ``apply``."""

    host = "v2"

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:
        if self._processor is None:
            with calling("__init__"):
                self._processor = self._cls(self._config(steady), steady.slots.state)
        self._entered = [(slot, self._parameters(uses)) for slot, uses in change.entered]
        self._ctx = steady.context(self._device)

    def follow(self) -> None:
        with calling("add_request"):
            for slot, params in self._entered:
                self._processor.add_request(slot, params)
        self.rest()

    def rest(self) -> None:
        with calling("apply_staged_writes"):
            self._processor.apply_staged_writes()

    def apply(self, logits: torch.Tensor) -> Any:
        with calling("apply"):
            result = self._processor.apply(logits, self._ctx)
        return checked(result, logits)


def floors() -> list[Candidate]:
    """What this device needs at least: one pass that reads the logits, and one that reads and writes them."""
    # Both are vectorized on every device, and neither needs memory worth mentioning.
    read = Function("one read (amax)", lambda steady: lambda logits: logits.amax(-1), 0.0, "floor")
    write = Function("one read and write (mul_)", lambda steady: lambda logits: logits.mul_(1.0), 0.0, "floor")
    return [read, write]
