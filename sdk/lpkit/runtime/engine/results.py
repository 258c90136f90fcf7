"""Results of a reference engine's step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from lpkit.v1 import BatchUpdate


class StepRow(NamedTuple):
    """One row of logits.

    Attributes:
        request_id: id of the request.
        position: of the last token fed. ``position + 1`` tokens are visible, and ``LogitsSource`` used the key
            (request_id, position).
        discarded: True if the engine discards the sampled token, because the prompt is not complete.
    """

    request_id: str
    position: int
    discarded: bool


@dataclass(frozen=True)
class StepResult:
    """One step of an engine.

    Attributes:
        rows: in batch order; empty without a forward pass.
        raw: the model's logits ``[n, vocab]``; None without a forward pass.
        processed: the logits after the sampler; None without a forward pass.
        sampled: int64 ``[n]``, discarded rows included; None without a forward pass.
        tokens: the tokens appended to each request.
        update: V1: the argument of ``update_state``.
        added: V2: (request_id, slot) of each request that took a slot.
        freed: V2: ids of the requests that freed their slot.
        applied: True if the custom processors' ``apply`` was called (V1: for processors that do not claim argmax
            invariance; V2: if the gate was open).
    """

    rows: tuple[StepRow, ...] = ()
    raw: torch.Tensor | None = None
    processed: torch.Tensor | None = None
    sampled: torch.Tensor | None = None
    tokens: dict[str, list[int]] = field(default_factory=dict)
    update: BatchUpdate | None = None
    added: tuple[tuple[str, int], ...] = ()
    freed: tuple[str, ...] = ()
    applied: bool = False
