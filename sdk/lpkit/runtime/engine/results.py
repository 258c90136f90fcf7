"""Results of a reference engine's step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

if TYPE_CHECKING:
    from lpkit.v1 import BatchUpdate


LogprobsMode = Literal["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"]


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

    def logprobs(self, mode: LogprobsMode = "raw_logprobs") -> torch.Tensor:
        """Return vLLM's report of every token under a ``logprobs_mode``: float32 ``[n, vocab]``.

        Args:
            mode: vLLM's ``logprobs_mode``; ``raw_logprobs``, vLLM's default, does not show edits of a processor.

        Raises:
            ValueError: the step had no forward pass, or the mode is unknown.
        """
        if mode not in get_args(LogprobsMode):
            raise ValueError(f"logprobs_mode is one of {', '.join(get_args(LogprobsMode))}, not {mode!r}")
        logits = self.raw if mode.startswith("raw") else self.processed
        if logits is None:
            raise ValueError("the step had no forward pass")
        return logits.float() if mode.endswith("logits") else logits.log_softmax(-1, dtype=torch.float32)
