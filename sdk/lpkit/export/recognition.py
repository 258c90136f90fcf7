"""For engines that show a sequence's tokens and nothing that says whose they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lpkit.export.host import ExportHost, check_vocabulary, sampling_params
from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams

_MOST = 256
"""Sequences that are remembered: those an engine may serve in turns with one callable."""


class Recognizer:
    """Tells sequences apart by their tokens: same prefix and same parameters is the same request.

    A call that shows a known sequence and one token more goes on with it. One that goes back inside a known sequence,
    and on from there, is a draft that was rejected: another row of the same prompt. Any other call begins a sequence,
    whose prompt is what it shows.

    Args:
        params: of every sequence.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._known: OrderedDict[int, tuple[V1Row, list[int]]] = OrderedDict()
        self._count = 0

    def row(self, tokens: Sequence[int]) -> V1Row:
        """The row that ``tokens`` are of.

        Args:
            tokens: a prompt and what was generated.

        Returns:
            A row that holds exactly these tokens; the same object as before if the sequence went on.
        """
        shown = list(tokens)
        before = shown[:-1]
        for name, (row, known) in reversed(self._known.items()):
            if shown and len(known) == len(before) and known == before:
                row.output_ids.append(shown[-1])
                known.append(shown[-1])
                self._known.move_to_end(name)
                return row
        prompt = next(
            (
                row.prompt_ids
                for row, known in reversed(self._known.values())
                if len(row.prompt_ids) < len(shown) <= len(known) and known[: len(before)] == before
            ),
            shown,
        )
        row = V1Row(self._params, list(prompt), shown[len(prompt) :])
        self._known[self._count] = (row, shown)
        self._count += 1
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return row


class SequenceBySequence:
    """One of lpkit's processors where each call shows one sequence, of which there may be several in turns.

    Args:
        cls: a processor's class.
        given: arguments of each sequence.
        temperature: that divides the logits afterwards.
        tokenizer: the model's, for processors that ask for words.
    """

    def __init__(
        self, cls: type[Any], given: Mapping[str, Any], *, temperature: float = 1.0, tokenizer: Any = None
    ) -> None:
        self._cls, self._tokenizer = cls, tokenizer
        self._params = sampling_params(cls, given, temperature)
        self._sequences = Recognizer(self._params)
        self._host: ExportHost | None = None

    def _edited(self, tokens: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        """The logits of a sequence's next token.

        Args:
            tokens: the prompt and what was generated.
            logits: ``[1, vocab]``, of any floating dtype. Not changed.

        Raises:
            ValueError: at the first call: a token id among the arguments is not in the vocabulary.
        """
        if self._host is None:
            check_vocabulary(self._cls, self._params, logits.shape[1])
            self._host = ExportHost(self._cls, logits.shape[1], logits.device, tokenizer=self._tokenizer)
        return self._host.process(logits, [self._sequences.row(tokens)])
