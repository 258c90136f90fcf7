"""The prompts, responses and logits of a call as rows of one matrix, for each layout of a batch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import torch

TokenIds: TypeAlias = "Sequence[int] | torch.Tensor"


class Text(NamedTuple):
    """A prompt and its response.

    Attributes:
        first: the row of its first response token.
    """

    prompt: list[int]
    response: list[int]
    first: int


class Piece(NamedTuple):
    """Neighbouring tokens of a response.

    Attributes:
        start, stop: positions in the response.
    """

    sequence: int
    start: int
    stop: int


class Batch:
    """Texts, and their logits as rows. The arguments are those of :func:`lpkit.train.processed_logits`.

    Attributes:
        texts: one per sequence.
        rows: ``[N, vocab]``, the logits.
        shape: shape of one value per row, in the layout of the caller's logits.

    Raises:
        TypeError: the logits are not a tensor.
        ValueError: the arguments do not fit together.
    """

    def __init__(
        self, prompt: TokenIds | Sequence[TokenIds], response: TokenIds | Sequence[TokenIds], logits: torch.Tensor
    ) -> None:
        if not isinstance(logits, torch.Tensor):
            raise TypeError(f"logits must be a torch.Tensor, not {type(logits).__qualname__}")
        if not logits.is_floating_point() or logits.ndim not in (2, 3):
            raise ValueError(
                f"logits must be floating-point [T, vocab] or [B, T, vocab], not {logits.dtype} {list(logits.shape)}"
            )
        self.alone = _is_one(response)
        if self.alone and logits.ndim == 3:
            raise ValueError("logits [B, T, vocab] need one response per sequence")
        prompts = [_ids(prompt)] if self.alone else [_ids(item) for item in prompt]  # type: ignore[arg-type]
        responses = [_ids(response)] if self.alone else [_ids(item) for item in response]  # type: ignore[arg-type]
        if len(prompts) != len(responses):
            raise ValueError(f"{len(prompts)} prompts and {len(responses)} responses")
        self.vocab_size = logits.shape[-1]
        self.shape = logits.shape[:-1]
        self.rows = logits.reshape(-1, self.vocab_size)
        self.texts: list[Text] = []
        first = 0
        for number, (given, answer) in enumerate(zip(prompts, responses, strict=True)):
            self._check(number, given, answer)
            if logits.ndim == 3:
                first = number * logits.shape[1]
                if len(answer) > logits.shape[1]:
                    raise ValueError(f"response {number} has {len(answer)} tokens, its logits {logits.shape[1]} rows")
            self.texts.append(Text(given, answer, first))
            first += len(answer)
        if logits.ndim == 3 and len(self.texts) != logits.shape[0]:
            raise ValueError(f"{len(self.texts)} responses, and logits of {logits.shape[0]} sequences")
        if logits.ndim == 2 and first != logits.shape[0]:
            raise ValueError(f"{first} response tokens, and {logits.shape[0]} rows of logits: one row per token")

    def _check(self, number: int, prompt: list[int], response: list[int]) -> None:
        if not prompt:
            raise ValueError(f"prompt {number} is empty")
        for position, token in enumerate(response):
            if not 0 <= token < self.vocab_size:
                raise ValueError(
                    f"response {number}, position {position}: token id {token} is outside the vocabulary of "
                    f"{self.vocab_size}"
                )

    @property
    def longest(self) -> int:
        """Number of tokens of the longest text."""
        return max((len(text.prompt) + len(text.response) for text in self.texts), default=1)

    def chunks(self, limit: int, kinds: Sequence[Hashable]) -> Iterator[list[Piece]]:
        """Yield all response tokens, at most ``limit`` at a time; a chunk holds sequences of one kind."""
        for kind in dict.fromkeys(kinds):
            chunk: list[Piece] = []
            room = limit
            for number, text in enumerate(self.texts):
                start, end = 0, len(text.response) if kinds[number] == kind else 0
                while start < end:
                    stop = min(end, start + room)
                    chunk.append(Piece(number, start, stop))
                    room -= stop - start
                    start = stop
                    if not room:
                        yield chunk
                        chunk, room = [], limit
            if chunk:
                yield chunk

    def ranges(self, chunk: Sequence[Piece]) -> list[slice]:
        """Return the rows of a chunk's pieces; neighbours share a slice."""
        ranges: list[slice] = []
        for piece in chunk:
            first = self.texts[piece.sequence].first
            start, stop = first + piece.start, first + piece.stop
            if ranges and ranges[-1].stop == start:
                start = ranges.pop().start
            ranges.append(slice(start, stop))
        return ranges

    def tokens(self, chunk: Sequence[Piece]) -> torch.Tensor:
        """Return the response tokens of a chunk's rows, ``[n]`` int64 on the device."""
        ids = [token for piece in chunk for token in self.texts[piece.sequence].response[piece.start : piece.stop]]
        return torch.tensor(ids, dtype=torch.int64).to(self.rows.device)


def _is_one(response: TokenIds | Sequence[TokenIds]) -> bool:
    if hasattr(response, "ndim"):  # a tensor of torch or numpy
        return bool(response.ndim == 1)
    if not response:
        return True
    first = response[0]
    return first.ndim == 0 if hasattr(first, "ndim") else not isinstance(first, Sequence)


def _ids(given: TokenIds) -> list[int]:
    ids = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise ValueError(f"token ids must be a list or a tensor of integers per sequence, not {given!r}")
    for token in ids:
        if not isinstance(token, int):
            kind = type(token)
            name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            raise ValueError(f"token ids must be integers: a list or a tensor of them per sequence, not of {name}")
    return list(ids)
