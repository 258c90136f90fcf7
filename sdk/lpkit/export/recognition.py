"""Recognizes requests in engines that show a sequence's tokens without the request's identity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lpkit.export.host import ExportHost, check_vocabulary, sampling_params
from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams

_MOST = 256
"""Number of remembered sequences, which an engine may serve in turns with one callable."""


class Recognizer:
    """Tells sequences apart by their tokens: the same prefix and the same parameters mean the same request.

    A known sequence with one token more continues that sequence. A return to an earlier position of a known sequence
    means a rejected draft: another row of the same prompt. Any other call begins a sequence, and its tokens are the
    prompt.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._remembered: OrderedDict[int, tuple[V1Row, list[int]]] = OrderedDict()
        self._count = 0

    def row(self, tokens: Sequence[int]) -> V1Row:
        """Return a row with exactly these tokens; the same object as before if the sequence continues."""
        shown = list(tokens)
        before = shown[:-1]
        for name, (row, sequence) in reversed(self._remembered.items()):
            if shown and len(sequence) == len(before) and sequence == before:
                row.output_ids.append(shown[-1])
                sequence.append(shown[-1])
                self._remembered.move_to_end(name)
                return row
        prompt = next(
            (
                row.prompt_ids
                for row, sequence in reversed(self._remembered.values())
                if len(row.prompt_ids) < len(shown) <= len(sequence) and sequence[: len(before)] == before
            ),
            shown,
        )
        row = V1Row(self._params, list(prompt), shown[len(prompt) :])
        self._remembered[self._count] = (row, shown)
        self._count += 1
        if len(self._remembered) > _MOST:
            self._remembered.popitem(last=False)
        return row


class SequenceBySequence:
    """An lpkit processor for engines that show one sequence per call, possibly several sequences in turns."""

    def __init__(
        self, cls: type[Any], given: Mapping[str, Any], *, temperature: float = 1.0, tokenizer: Any = None
    ) -> None:
        self._cls, self._tokenizer = cls, tokenizer
        self._params = sampling_params(cls, given, temperature)
        self._sequences = Recognizer(self._params)
        self._host: ExportHost | None = None

    def _edited(self, tokens: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """Return the edited ``[1, vocab]`` logits of a sequence's next token.

        The first call raises ValueError if an argument holds a token id outside the vocabulary.
        """
        if self._host is None:
            check_vocabulary(self._cls, self._params, logits.shape[1])
            self._host = ExportHost(self._cls, logits.shape[1], logits.device, tokenizer=self._tokenizer)
        return self._host.process(logits, [self._sequences.row(tokens)])
