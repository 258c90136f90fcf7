"""The processed logits and log-probabilities of responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, overload

import torch

from lpkit.sampling_params import SamplingParams
from lpkit.train.batch import Batch, Piece, TokenIds
from lpkit.train.chunked import chunked, put
from lpkit.train.forbidden import ForbiddenToken, ForbiddenTokensError
from lpkit.train.replays import Runner, replay_of
from lpkit.train.requests import Parameters, Sampling, requests_of

CHUNK_BYTES = 2**26
"""Logits that are processed at a time, in bytes of float32."""


class Masked(NamedTuple):
    """Values, and the positions at which they are undefined.

    Attributes:
        values: the function's usual result. Log-probabilities of forbidden tokens are 0, without a gradient.
        forbidden: bool, one per response token: True for tokens whose processed logit is -inf.
    """

    values: torch.Tensor
    forbidden: torch.Tensor


class _Scored(Protocol):
    """The type of both functions: a mask makes their result a pair."""

    @overload
    def __call__(
        self,
        cls: type[Any],
        parameters: Parameters | Sequence[Parameters | None] | None,
        prompt: TokenIds | Sequence[TokenIds],
        response: TokenIds | Sequence[TokenIds],
        logits: torch.Tensor,
        *,
        sampling: Sampling | Sequence[Sampling | None] | None = None,
        runner: Runner = "v2",
        tokenizer: Any = None,
        forbidden: Literal["raise"] = "raise",
        chunk_bytes: int = CHUNK_BYTES,
    ) -> torch.Tensor: ...

    @overload
    def __call__(
        self,
        cls: type[Any],
        parameters: Parameters | Sequence[Parameters | None] | None,
        prompt: TokenIds | Sequence[TokenIds],
        response: TokenIds | Sequence[TokenIds],
        logits: torch.Tensor,
        *,
        sampling: Sampling | Sequence[Sampling | None] | None = None,
        runner: Runner = "v2",
        tokenizer: Any = None,
        forbidden: Literal["mask"],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Masked: ...


def _scored(function: Any) -> _Scored:
    typed: _Scored = function
    return typed


@_scored
def processed_logits(
    cls: type[Any],
    parameters: Parameters | Sequence[Parameters | None] | None,
    prompt: TokenIds | Sequence[TokenIds],
    response: TokenIds | Sequence[TokenIds],
    logits: torch.Tensor,
    *,
    sampling: Sampling | Sequence[Sampling | None] | None = None,
    runner: Runner = "v2",
    tokenizer: Any = None,
    forbidden: Literal["raise", "mask"] = "raise",
    chunk_bytes: int = CHUNK_BYTES,
) -> torch.Tensor | Masked:
    """Return the logits that the tokens of responses were sampled from.

    Args:
        cls: a processor's class: any of lpkit's bases, a bridge, or a class with the runner's interface.
        parameters: of the processor, by field name or by key, for all sequences; or a list with one entry per sequence.
            None means a request without arguments; a class whose parameters all have defaults still runs.
        prompt: token ids as a list or a tensor; a list of lists or tensors for several sequences.
        response: like ``prompt``. Token ``t`` of a response was sampled after the prompt and ``t`` tokens.
        logits: the model's, row ``t`` for token ``t``: ``[T, vocab]``. For several sequences, ``[B, T, vocab]`` padded
            behind each response, or packed ``[sum of T, vocab]``. Not changed.
        sampling: the engine's options, such as ``{"temperature": 0.7, "top_p": 0.9}``, or the rollout's own
            ``SamplingParams``, whose ``extra_args`` then are the parameters. One for all sequences, or a list with one
            entry per sequence. With ``min_tokens``, put the model's end tokens into ``stop_token_ids``; an engine adds
            them automatically.
        runner: vLLM's runner; it decides the order of stages.
        tokenizer: the model's, for processors that need it (word parameters, ``lpkit.tokenizer``): a tokenizer, its
            folder, or a function that makes a tokenizer.
        forbidden: for tokens that cannot have been sampled: ``"raise"``, or return a ``"mask"``.
        chunk_bytes: bytes of logits to process at a time. The result does not depend on it.

    Returns:
        float32 (float64 for float64 logits) of the logits' shape, -inf for tokens that are ruled out. Rows of padding
        are the logits. With ``"mask"`` a :class:`Masked`. Differentiable in ``logits``, once: rows are processed again
        for the gradient, not kept. The set of ruled-out tokens counts as constant.

    Raises:
        ForbiddenTokensError: a response has tokens that are ruled out.
        ValueError: an argument is wrong, unknown or not covered, or the processor cannot admit a sequence.
        TypeError: the class lacks the runner's interface, or an argument is of another type.
    """
    scorer = Scorer(cls, parameters, prompt, response, logits, sampling, runner, chunk_bytes, tokenizer)
    return scorer.result(scorer.logits(), forbidden)


@_scored
def processed_logprobs(
    cls: type[Any],
    parameters: Parameters | Sequence[Parameters | None] | None,
    prompt: TokenIds | Sequence[TokenIds],
    response: TokenIds | Sequence[TokenIds],
    logits: torch.Tensor,
    *,
    sampling: Sampling | Sequence[Sampling | None] | None = None,
    runner: Runner = "v2",
    tokenizer: Any = None,
    forbidden: Literal["raise", "mask"] = "raise",
    chunk_bytes: int = CHUNK_BYTES,
) -> torch.Tensor | Masked:
    """Return the log-probabilities with which the tokens of responses were sampled.

    vLLM reports the same values with ``logprobs_mode="processed_logprobs"``, including for greedy requests.

    Args:
        cls, parameters, prompt, response, logits, sampling, runner, tokenizer, forbidden: as for
            :func:`processed_logits`.
        chunk_bytes: bytes of logits to process at a time. It bounds the memory needed in addition to the logits and
            their gradient.

    Returns:
        float32 (float64 for float64 logits), one per row of logits; 0 for padding. With ``"mask"`` a :class:`Masked`.
        Differentiable in ``logits``, once.

    Raises:
        ForbiddenTokensError: a response has tokens that are ruled out.
        ValueError: an argument is wrong, unknown or not covered, or the processor cannot admit a sequence.
        TypeError: the class lacks the runner's interface, or an argument is of another type.
    """
    scorer = Scorer(cls, parameters, prompt, response, logits, sampling, runner, chunk_bytes, tokenizer)
    return scorer.result(scorer.logprobs(), forbidden)


class Scorer:
    """One call: its batch, the processor's replay, and the forbidden tokens found so far."""

    def __init__(
        self,
        cls: type[Any] | None,
        parameters: Any,
        prompt: Any,
        response: Any,
        logits: torch.Tensor,
        sampling: Any,
        runner: Runner,
        chunk_bytes: int,
        tokenizer: Any,
    ) -> None:
        self.batch = batch = Batch(prompt, response, logits)
        self.params: list[SamplingParams] = requests_of(cls, parameters, sampling, len(batch.texts))
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes must be positive, not {chunk_bytes}")
        # Histories count as well: a rule may read all tokens for each row.
        limit = max(1, chunk_bytes // (4 * batch.vocab_size + 16 * batch.longest))
        self._replay = replay_of(runner, cls, batch, self.params, limit, tokenizer)
        self._chunks = list(batch.chunks(limit, self._replay.kinds))
        self._forbidden = torch.zeros(batch.rows.shape[0], dtype=torch.bool, device=batch.rows.device)
        self._dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32

    def logits(self) -> torch.Tensor:
        rows = self.batch.rows
        return chunked(self.batch, self._chunks, self._process, rows.detach().to(self._dtype, copy=True))

    def logprobs(self) -> torch.Tensor:
        rows = self.batch.rows
        zeros = torch.zeros(rows.shape[0], dtype=self._dtype, device=rows.device)
        return chunked(self.batch, self._chunks, self._score, zeros)

    def _process(self, logits: torch.Tensor, chunk: Sequence[Piece]) -> torch.Tensor:
        processed = self._replay.edit(logits, chunk)
        self._note(processed, self.batch.tokens(chunk).unsqueeze(1), chunk)
        return processed

    def _score(self, logits: torch.Tensor, chunk: Sequence[Piece]) -> torch.Tensor:
        processed, ids = self._replay.edit(logits, chunk), self.batch.tokens(chunk).unsqueeze(1)
        possible = ~self._note(processed, ids, chunk)
        if bool(possible.all()):
            return processed.log_softmax(-1).gather(1, ids).squeeze(1)
        # A fully masked row would give NaN, and a gradient of NaN.
        kept = possible.nonzero().squeeze(1)
        values = processed.index_select(0, kept).log_softmax(-1).gather(1, ids.index_select(0, kept)).squeeze(1)
        return processed.new_zeros(processed.shape[0]).index_copy(0, kept, values)

    def _note(self, processed: torch.Tensor, ids: torch.Tensor, chunk: Sequence[Piece]) -> torch.Tensor:
        forbidden = processed.detach().gather(1, ids).squeeze(1).isneginf()
        put(self._forbidden, self.batch.ranges(chunk), forbidden)
        return forbidden

    def result(self, values: torch.Tensor, forbidden: str) -> torch.Tensor | Masked:
        shaped = values.reshape(*self.batch.shape, *values.shape[1:])
        if forbidden == "mask":
            return Masked(shaped, self._forbidden.reshape(self.batch.shape))
        if forbidden != "raise":
            raise ValueError(f"forbidden must be 'raise' or 'mask', not {forbidden!r}")
        if tokens := self.forbidden_tokens():
            raise ForbiddenTokensError(tokens)
        return shaped

    def forbidden_tokens(self) -> list[ForbiddenToken]:
        if not bool(self._forbidden.any()):
            return []
        marks = self._forbidden.tolist()
        return [
            ForbiddenToken(number, position, token)
            for number, text in enumerate(self.batch.texts)
            for position, token in enumerate(text.response)
            if marks[text.first + position]
        ]


def unpadded(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    """Remove the padding from a batch of prompts or responses.

    Args:
        ids: token ids ``[B, T]``, padded on either side.
        mask: of the same shape, 1 or True for tokens, 0 for padding.

    Returns:
        The token ids of each sequence.
    """
    return [row[kept].tolist() for row, kept in zip(ids, mask.to(torch.bool), strict=True)]
