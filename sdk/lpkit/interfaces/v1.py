"""vLLM's V1 logits processor interface (``vllm.v1.sample.logits_processor``), in our own words.

A processor keeps one state per batch row. Before each forward pass the engine reports, in a
:class:`BatchUpdate`, how the rows changed; after it, :meth:`LogitsProcessor.apply` edits one row of logits per
request. Semantics and field order are those of vLLM 0.32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lpkit.interfaces.sampling_params import SamplingParams

if TYPE_CHECKING:
    import torch

State = TypeVar("State")

RequestLogitsProcessor: TypeAlias = "Callable[..., torch.Tensor]"
"""``(output_ids, logits) -> logits`` or ``(prompt_ids, output_ids, logits) -> logits`` on one 1-D row."""


class MoveDirectionality(Enum):
    """Whether a move overwrites its destination or exchanges both rows."""

    UNIDIRECTIONAL = auto()
    SWAP = auto()


RemovedRequest: TypeAlias = int
"""Row of a request that left."""

AddedRequest: TypeAlias = "tuple[int, SamplingParams, list[int] | None, list[int]]"
"""(row, params, prompt token ids or None, live output token ids). Never mutate either list."""

MovedRequest: TypeAlias = tuple[int, int, MoveDirectionality]
"""(source row, destination row, kind)."""


@dataclass(frozen=True)
class BatchUpdate:
    """How the persistent batch changed since the previous step.

    Attributes:
        batch_size: number of requests in the batch after the update.
        removed: rows whose request left without replacement, in descending order.
        added: new requests; an occupant of the same row is replaced without appearing in ``removed``.
        moved: moves in the order to perform them, after all removals and additions.
    """

    batch_size: int
    removed: Sequence[RemovedRequest]
    added: Sequence[AddedRequest]
    moved: Sequence[MovedRequest]


class LogitsProcessor(ABC):
    """Base of a V1 processor: one instance per engine process, one row of logits per request.

    Args:
        vllm_config: the engine's configuration.
        device: of the logits.
        is_pin_memory: whether host memory is to be pinned.
    """

    @classmethod  # noqa: B027
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a request whose arguments are wrong; the engine then refuses that request only.

        Args:
            sampling_params: of the request.

        Raises:
            ValueError: the reason.
        """

    @abstractmethod
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        # vLLM's abstract methods raise too, so that a subclass may not call them through super().
        raise NotImplementedError

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Edit the logits of a step.

        Args:
            logits: float32 ``[rows, vocab]``, to be edited in place or not.

        Returns:
            The edited logits, of the same shape, dtype and device.
        """
        raise NotImplementedError

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Whether no row's argmax ever changes; asked once, right after construction."""
        raise NotImplementedError

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the batch; called before each forward pass.

        Args:
            batch_update: what changed since the last step; None: nothing.
        """
        raise NotImplementedError


class BatchUpdateBuilder:
    """Collects one step's changes.

    Removals come first. Reading ``removed`` (or peeking, or popping) sorts it and closes it for the step:
    a later :meth:`removed_append` raises ``RuntimeError``.

    Args:
        removed: rows.
        added: requests.
        moved: moves.
    """

    def __init__(
        self,
        removed: list[RemovedRequest] | None = None,
        added: list[AddedRequest] | None = None,
        moved: list[MovedRequest] | None = None,
    ) -> None:
        self._removed = removed or []
        self._sorted = False
        self.added = added or []
        self.moved = moved or []
        # Set by removals, and by the batch when it adds to a pooling model, whose additions are not listed.
        self.batch_changed = False

    def _close(self) -> None:
        if not self._sorted:
            self._removed.sort(reverse=True)
            self._sorted = True

    @property
    def removed(self) -> list[RemovedRequest]:
        """Rows freed and not yet reused, descending."""
        self._close()
        return self._removed

    def removed_append(self, index: int) -> None:
        """Record that a request left.

        Args:
            index: the row.
        """
        if self._sorted:
            raise RuntimeError("a removal was registered after this step's removals had been read")
        self._removed.append(index)
        self.batch_changed = True

    def has_removed(self) -> bool:
        """Whether a freed row is left."""
        return bool(self._removed)

    def peek_removed(self) -> int | None:
        """The lowest freed row, or None."""
        return self.removed[-1] if self._removed else None

    def pop_removed(self) -> int | None:
        """Take the lowest freed row.

        Returns:
            The row; None if there is none.
        """
        return self.removed.pop() if self._removed else None

    def reset(self) -> bool:
        """Drop everything; return whether the batch had changed."""
        changed = self.batch_changed
        self._removed.clear()
        self.added.clear()
        self.moved.clear()
        self._sorted = self.batch_changed = False
        return changed

    def get_and_reset(self, batch_size: int) -> BatchUpdate | None:
        """The step's update, or None if nothing changed; the builder starts afresh.

        Args:
            batch_size: number of requests after the update.
        """
        self._sorted = self.batch_changed = False
        if not (self._removed or self.added or self.moved):
            return None
        update = BatchUpdate(batch_size, self._removed, self.added, self.moved)
        self._removed, self.added, self.moved = [], [], []
        return update


class LogitsProcessors:
    """The engine's processors, split by their claim about the argmax.

    Args:
        logitsprocs: all processors; ``is_argmax_invariant`` is asked here, once.
    """

    def __init__(self, logitsprocs: Iterable[LogitsProcessor] | None = None) -> None:
        self.argmax_invariant: list[LogitsProcessor] = []
        self.non_argmax_invariant: list[LogitsProcessor] = []
        for processor in logitsprocs or ():
            group = self.argmax_invariant if processor.is_argmax_invariant() else self.non_argmax_invariant
            group.append(processor)

    @property
    def all(self) -> Iterator[LogitsProcessor]:
        """Every processor, the argmax-invariant ones first."""
        return chain(self.argmax_invariant, self.non_argmax_invariant)


def process_dict_updates(
    req_entries: dict[int, State],
    batch_update: BatchUpdate | None,
    new_state: Callable[[SamplingParams, list[int] | None, list[int]], State | None],
) -> bool:
    """Keep states by row in step with the batch.

    Args:
        req_entries: the state of each row; edited.
        batch_update: what changed since the last step; None: nothing.
        new_state: gives the state of an added request, or None if it does not use the processor.

    Returns:
        Whether an entry changed.
    """
    if batch_update is None:
        return False
    changed = False
    for index, params, prompt_ids, output_ids in batch_update.added:
        state = new_state(params, prompt_ids, output_ids)
        if state is not None:
            req_entries[index] = state
            changed = True
        elif req_entries.pop(index, None) is not None:
            changed = True
    if not req_entries:
        return changed
    for index in batch_update.removed:
        # vLLM tests the truth of the entry here, not its presence; kept, because it is observable.
        if req_entries.pop(index, None):
            changed = True
    for source, destination, kind in batch_update.moved:
        moving, displaced = req_entries.pop(source, None), req_entries.pop(destination, None)
        if moving is not None:
            req_entries[destination] = moving
        if displaced is not None and kind is MoveDirectionality.SWAP:
            req_entries[source] = displaced
        changed = changed or moving is not None or displaced is not None
    return changed
