"""A batch in steady state, in which requests leave and arrive at every step; and the candidates timed on it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lpkit.runtime import Request, V1Batch, V2Row, V2Slots, make_config, make_context
from lpkit.v1 import BatchUpdate

LIFETIME = 64
"""Steps that a request lives: a share of ``1 / LIFETIME`` leaves at each step, at least one request."""

PROMPT_SHARE = 0.75
"""Share of a new request's context that is its prompt; the rest counts as output, as after a resume."""

HEADROOM = 512
"""Tokens that a request may gain before the batch stops."""

User = bool
"""True if a request uses the processor."""


@dataclass
class BatchChange:
    """The changes of one step: V1's update, with users instead of parameters, and V2's entries."""

    update: BatchUpdate
    entered: list[tuple[int, User]] = field(default_factory=list)


class SteadyBatch:
    """The requests, their rows and their slots; the same for all that is measured.

    Args:
        batch: requests in every step.
        vocab: token ids are below it.
        context: tokens of a request when it enters.
        share: of the requests that use the processor, evenly spread.
        device: of V2's buffers.
    """

    def __init__(self, batch: int, vocab: int, context: int, share: float, device: torch.device, seed: int = 0) -> None:
        self.size, self.vocab = batch, vocab
        self.max_model_len = context + HEADROOM
        self._random = random.Random(f"{seed} {batch} {vocab}")
        self._context = context
        self._share = share
        self._count = 0
        self._used = 0.0
        self._batch = V1Batch(batch)
        self._live: list[Request] = []
        self.slots = V2Slots(batch, self.max_model_len, device, vocab_size=vocab)
        self.steps = 0

    def _new(self) -> Request:
        self._count += 1
        prompt_len = max(1, int(self._context * PROMPT_SHARE))
        few = min(self.vocab, 4 * self._context)  # so that some tokens repeat
        tokens = [self._random.randrange(few) for _ in range(self._context)]
        self._used += self._share
        uses = self._used >= 1.0 - 1e-9
        self._used -= uses
        any_params: Any = uses
        return Request(f"r{self._count}", any_params, tokens[:prompt_len], 10**6, output_token_ids=tokens[prompt_len:])

    def change(self) -> BatchChange:
        """Change the batch as a step would; the first change fills it."""
        wanted = self.size if not self._live else max(1, self.size // LIFETIME)
        leaving = [request.request_id for request in self._random.sample(self._live, wanted if self._live else 0)]
        arriving = [self._new() for _ in range(wanted)]
        # As attention backends do.
        first, second = self._random.sample(range(self.size), 2) if self.size > 1 else (0, 0)
        update = self._batch.change(leaving, arriving, [(first, second)] if first != second else [])
        assert update is not None
        self._live = list(self._batch.requests)
        return BatchChange(update, [(slot, bool(r.params)) for r, slot in self.slots.change(leaving, arriving)])

    def no_change(self) -> BatchChange:
        """Return the change of a step in which no request arrives or leaves."""
        return BatchChange(BatchUpdate(self.size, [], [], []))

    def config(self, device: torch.device) -> Any:
        """Return the ``vllm_config`` of an engine with this batch."""
        return make_config(
            max_num_seqs=self.size, vocab_size=self.vocab, max_model_len=self.max_model_len, device=device
        )

    def context(self, device: torch.device) -> Any:
        """V2's ``LogitsContext`` of this step, rows as V1 has them."""
        rows = [
            V2Row(self.slots.slot(request.request_id), request.total_len - 1, request.last_token_id)
            for request in self._live
        ]
        return make_context(rows, device)

    @property
    def rows(self) -> list[Request]:
        """The requests by row; their ``params`` are only True or False: the request uses the processor or not."""
        return self._live

    def advance(self) -> None:
        """Every request gains a token."""
        self.steps += 1
        tokens = [self._random.randrange(min(self.vocab, 4 * self._context)) for _ in self._live]
        self.slots.commit_each([self.slots.slot(request.request_id) for request in self._live], tokens)
        for request, token in zip(self._live, tokens, strict=True):
            request.output_token_ids.append(token)


def update_with(update: BatchUpdate, params: Callable[[User], Any]) -> BatchUpdate:
    """``update`` with a request's parameters."""
    added = [(row, params(bool(uses)), prompt, output) for row, uses, prompt, output in update.added]
    return BatchUpdate(update.batch_size, update.removed, added, update.moved)


MEMORY = 3.0
"""Tensors of the logits' size that a candidate may need in addition to its input, by default."""


class Candidate(ABC):
    """Something that edits a batch of logits, once per step.

    Attributes:
        kind: ``target``, ``alternative`` or ``floor``.
        host: ``v1``, ``v2`` or empty.
        memory: tensors of the logits' size that it may need in addition to its input.
    """

    kind = "alternative"
    host = ""
    memory = MEMORY

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:  # noqa: B027 - most candidates need nothing
        """Prepare the data that the engine would have ready at this step; not timed."""

    def follow(self) -> None:  # noqa: B027
        """The bookkeeping of the step that was prepared."""

    def rest(self) -> None:  # noqa: B027
        """The bookkeeping of a step that changes nothing."""

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> Any:
        """Edit the logits of one step."""


class ProcessorCandidate(Candidate):
    """A class with one of vLLM's interfaces; its instance is made when the batch is known.

    Args:
        parameters: returns the ``SamplingParams`` of a request, given True if it uses the processor.
        device: of the logits.
    """

    made = False

    def __init__(
        self, name: str, cls: Any, parameters: Callable[[User], Any], device: torch.device, kind: str = "target"
    ) -> None:
        super().__init__(name)
        self.kind, self.device = kind, device
        self.cls, self.parameters = cls, parameters
