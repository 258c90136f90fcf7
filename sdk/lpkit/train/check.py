"""Compares the log-probabilities that a trainer computes with those that its rollouts reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from lpkit.train.batch import TokenIds
from lpkit.train.replays import Runner
from lpkit.train.requests import Parameters, Sampling
from lpkit.train.scores import CHUNK_BYTES, Scorer

_SHOWN = 5
_OTHER: dict[Runner, Runner] = {"v1": "v2", "v2": "v1"}


class Difference(NamedTuple):
    """A token on which rollout and trainer disagree.

    Attributes:
        sequence: number of the response in the batch.
        position: of the token in the response, from 0.
        token: its id.
        rollout: the log-probability that the rollout reported.
        trainer: log-probability from the trainer's logits; -inf if the token is ruled out.
    """

    sequence: int
    position: int
    token: int
    rollout: float
    trainer: float

    def __str__(self) -> str:
        return (
            f"sequence {self.sequence}, position {self.position}, token {self.token}: rollout {self.rollout:.6g}, "
            f"trainer {self.trainer:.6g}"
        )


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`check_rollout`; as a string, a report of a few lines.

    Attributes:
        tokens: number of compared tokens.
        tolerance: largest accepted difference of two log-probabilities.
        largest: largest difference.
        differences: the tokens with a larger difference, in order.
        hint: an explanation of the differences; "" if lpkit knows none.
    """

    tokens: int
    tolerance: float
    largest: float
    differences: tuple[Difference, ...]
    hint: str = ""

    @property
    def agrees(self) -> bool:
        """True if no token differs."""
        return not self.differences

    def __str__(self) -> str:
        if self.agrees:
            return f"{self.tokens} tokens agree within {self.tolerance:g}; the largest difference is {self.largest:.3g}"
        first = f"{len(self.differences)} of {self.tokens} tokens differ by more than {self.tolerance:g}"
        more = len(self.differences) - _SHOWN
        lines = [f"{first}, by {self.largest:.3g} at most", *(f"  {item}" for item in self.differences[:_SHOWN])]
        if more > 0:
            lines.append(f"  and {more} more")
        return "\n".join([*lines, self.hint] if self.hint else lines)


@torch.no_grad()
def check_rollout(
    cls: type[Any],
    parameters: Parameters | Sequence[Parameters | None] | None,
    prompt: TokenIds | Sequence[TokenIds],
    response: TokenIds | Sequence[TokenIds],
    logits: torch.Tensor,
    rollout: Sequence[float] | Sequence[Sequence[float]] | torch.Tensor,
    *,
    tolerance: float = 1e-3,
    sampling: Sampling | Sequence[Sampling | None] | None = None,
    runner: Runner = "v2",
    tokenizer: Any = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Comparison:
    """Compare the log-probabilities of a rollout with the values that a trainer would compute.

    Run it on one batch before you train. With equal weights, any difference comes from the processing.

    Args:
        cls, parameters, prompt, response, sampling, runner, tokenizer, chunk_bytes: as for :func:`processed_logprobs`.
        logits: the trainer's.
        rollout: vLLM's log-probability of each response token with ``logprobs_mode="processed_logprobs"``. As nested as
            ``response``, or a tensor with the layout of ``logits``.
        tolerance: largest accepted difference of two log-probabilities. Engines in bfloat16 need about 0.05.

    Returns:
        The tokens that differ, and the reason if lpkit recognizes it.

    Raises:
        ValueError: an argument is wrong, unknown or not covered, or the processor cannot admit a sequence.
    """
    scorer = Scorer(cls, parameters, prompt, response, logits, sampling, runner, chunk_bytes, tokenizer)
    values = scorer.logprobs()
    ruled_out = {item[:2] for item in scorer.forbidden_tokens()}
    texts = scorer.batch.texts
    reported = _nested(rollout, scorer)
    differing = []
    largest = 0.0
    for number, text in enumerate(texts):
        ours = values[text.first : text.first + len(text.response)].tolist()
        for position, (token, theirs, trained) in enumerate(zip(text.response, reported[number], ours, strict=True)):
            item = Difference(
                number, position, token, theirs, -math.inf if (number, position) in ruled_out else trained
            )
            apart = 0.0 if item.rollout == item.trainer else abs(item.rollout - item.trainer)
            largest = apart if math.isnan(apart) else max(largest, apart)
            if not apart <= tolerance:
                differing.append(item)
    tokens = sum(len(text.response) for text in texts)
    if not differing:
        return Comparison(tokens, tolerance, largest, ())

    def explains(cls: type[Any] | None, parameters: Any, sampling: Any, runner: Runner) -> bool:
        other = Scorer(cls, parameters, prompt, response, logits, sampling, runner, chunk_bytes, tokenizer)
        scores = other.logprobs()
        return not other.forbidden_tokens() and all(
            abs(float(scores[texts[item.sequence].first + item.position]) - item.rollout) <= tolerance
            for item in differing
        )

    hint = ""
    if explains(None, None, None, runner):
        hint = (
            "The rollout reported log-probabilities of the unprocessed logits: start vLLM with "
            'logprobs_mode="processed_logprobs".'
        )
    elif _has_both(cls) and explains(cls, parameters, sampling, _OTHER[runner]):
        hint = f"The rollout ran on the other runner: give runner={_OTHER[runner]!r}."
    return Comparison(tokens, tolerance, largest, tuple(differing), hint)


def _has_both(cls: type[Any]) -> bool:
    return hasattr(cls, "update_state") and hasattr(cls, "add_request")


def _nested(rollout: Any, scorer: Scorer) -> list[list[float]]:
    """Return the reported values by sequence."""
    texts, shape = scorer.batch.texts, scorer.batch.shape
    if isinstance(rollout, torch.Tensor):
        if rollout.shape != shape:
            raise ValueError(f"rollout has the shape {list(rollout.shape)}, the logits' rows {list(shape)}")
        flat = rollout.reshape(-1).tolist()
        return [flat[text.first : text.first + len(text.response)] for text in texts]
    reported = [list(rollout)] if scorer.batch.alone else [list(item) for item in rollout]
    if [len(item) for item in reported] != [len(text.response) for text in texts]:
        raise ValueError("rollout needs one log-probability per response token")
    return reported
