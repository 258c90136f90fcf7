"""vLLM's V1 logits processor interface (``vllm.v1.sample.logits_processor``), rewritten for lpkit.

A processor keeps one state per batch row. Before each forward pass the engine reports the changed rows in a
:class:`BatchUpdate`. After the pass, :meth:`LogitsProcessor.apply` edits one row of logits per request. Semantics and
field order are vLLM's since 0.11.1.
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

RequestLogitsProcessor: TypeAlias = Callable[..., "torch.Tensor"]
"""``(output_ids, logits) -> logits`` or ``(prompt_ids, output_ids, logits) -> logits`` on one 1-D row."""


class MoveDirectionality(Enum):
    """Kind of a move: it overwrites its destination or exchanges both rows."""

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
    """Changes of the persistent batch since the previous step.

    Attributes:
        batch_size: number of requests in the batch after the update.
        removed: rows whose request left without replacement, in descending order.
        added: new requests; a new request may replace another in its row, which ``removed`` then omits.
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
        is_pin_memory: True to pin host memory.
    """

    @classmethod  # noqa: B027
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a request whose arguments are wrong; the engine then refuses that request only.

        Args:
            sampling_params: of the request.

        Raises:
            ValueError: the arguments are wrong; the message says why.
        """

    @abstractmethod
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        # vLLM's abstract methods raise as well, so a subclass cannot call them through super().
        raise NotImplementedError

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Edit the logits of a step.

        Args:
            logits: float32 ``[rows, vocab]``, which may be edited in place.

        Returns:
            The edited logits, of the same shape, dtype and device.
        """
        raise NotImplementedError

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Return True if no row's argmax ever changes. The engine asks once, right after construction."""
        raise NotImplementedError

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the batch; the engine calls this before each forward pass.

        Args:
            batch_update: changes since the last step; None if nothing changed.
        """
        raise NotImplementedError


class BatchUpdateBuilder:
    """Collects the changes of one step.

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
        # Removals set this. So does a pooling model's batch when it adds requests, which ``added`` does not list.
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
        """Record that the request in row ``index`` leaves."""
        if self._sorted:
            raise RuntimeError("a removal was registered after this step's removals had been read")
        self._removed.append(index)
        self.batch_changed = True

    def has_removed(self) -> bool:
        """Return True if a freed row is left."""
        return bool(self._removed)

    def peek_removed(self) -> int | None:
        """Return the lowest freed row, or None."""
        return self.removed[-1] if self._removed else None

    def pop_removed(self) -> int | None:
        """Take and return the lowest freed row; None if no row is free."""
        return self.removed.pop() if self._removed else None

    def reset(self) -> bool:
        """Drop all changes and return True if the batch had changed."""
        changed = self.batch_changed
        self._removed.clear()
        self.added.clear()
        self.moved.clear()
        self._sorted = self.batch_changed = False
        return changed

    def get_and_reset(self, batch_size: int) -> BatchUpdate | None:
        """Return the step's update, or None if nothing changed, and empty the builder.

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
        logitsprocs: all processors; their ``is_argmax_invariant`` is called here, once.
    """

    def __init__(self, logitsprocs: Iterable[LogitsProcessor] | None = None) -> None:
        self.argmax_invariant: list[LogitsProcessor] = []
        self.non_argmax_invariant: list[LogitsProcessor] = []
        for processor in logitsprocs or ():
            group = self.argmax_invariant if processor.is_argmax_invariant() else self.non_argmax_invariant
            group.append(processor)

    @property
    def all(self) -> Iterator[LogitsProcessor]:
        """Iterate over all processors, argmax-invariant processors first."""
        return chain(self.argmax_invariant, self.non_argmax_invariant)


def process_dict_updates(
    req_entries: dict[int, State],
    batch_update: BatchUpdate | None,
    new_state: Callable[[SamplingParams, list[int] | None, list[int]], State | None],
) -> bool:
    """Update per-row states from a batch update.

    Args:
        req_entries: the state of each row; edited.
        batch_update: changes since the last step; None if nothing changed.
        new_state: returns the state of an added request, or None if the request does not use the processor.

    Returns:
        True if an entry changed.
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
        # vLLM tests the truth of the entry here, not its presence. Processors can observe this, so lpkit does the same.
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
