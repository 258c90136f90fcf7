"""What a step of a reference engine tells."""

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
        request_id: whose it is.
        position: of the last token fed; ``position + 1`` tokens are visible, and ``LogitsSource`` was asked for
            (request_id, position).
        discarded: the engine throws the sampled token away (the prompt is not complete yet).
    """

    request_id: str
    position: int
    discarded: bool


@dataclass(frozen=True)
class StepResult:
    """One step of an engine.

    Attributes:
        rows: in batch order; empty when there was no forward pass.
        raw: the model's logits ``[n, vocab]``; None without a forward pass.
        processed: what the sampler made of them; None likewise.
        sampled: int64 ``[n]``, discarded rows included; None likewise.
        tokens: the tokens appended to each request.
        update: V1: what ``update_state`` was called with.
        added: V2: (request_id, slot) of each request that took a slot.
        freed: V2: ids of the requests that gave their slot back.
        applied: whether the custom processors' ``apply`` was called (V1: those that do not claim argmax
            invariance; V2: the gate was open).
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
        """What vLLM's ``logprobs_mode`` would report for every token: float32 ``[n, vocab]``.

        Args:
            mode: vLLM's ``logprobs_mode``; ``raw_logprobs``, vLLM's default, does not show what a processor did.

        Raises:
            ValueError: if there was no forward pass, or for another mode.
        """
        if mode not in get_args(LogprobsMode):
            raise ValueError(f"logprobs_mode is one of {', '.join(get_args(LogprobsMode))}, not {mode!r}")
        logits = self.raw if mode.startswith("raw") else self.processed
        if logits is None:
            raise ValueError("the step had no forward pass")
        return logits.float() if mode.endswith("logits") else logits.log_softmax(-1, dtype=torch.float32)
