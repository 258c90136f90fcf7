"""transformers: rows without identity, which beams copy and reorder, and padding on the left."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from lpkit.export.generate_call import GenerateCall, locals_of_generate
from lpkit.export.host import ExportHost, check_class, check_vocabulary, sampling_params
from lpkit.export.texts import Ids, RecognizedTexts
from lpkit.sampling_params import SamplingParams


class ExportedProcessor(LogitsProcessor):
    """An lpkit processor in ``generate``; :func:`lpkit.export.transformers` makes it.

    Each call of ``generate`` is a separate generation, with the call's prompts, attention mask and temperature. In any
    other loop, rows that continue the rows of the previous call belong to the same generation. There, :meth:`reset`
    begins another, and ``pad_token_id`` and ``temperature`` keep their values from the export.
    """

    supports_continuous_batching = False

    def __init__(
        self,
        cls: type[Any],
        given: Sequence[Mapping[str, Any] | None],
        *,
        temperature: float | None = None,
        pad_token_id: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        check_class(cls)
        if not given:
            raise ValueError(f"{cls.__qualname__} was exported with the arguments of no prompt")
        self._cls, self._given = cls, given
        self._temperature, self._pad, self._tokenizer = temperature, pad_token_id, tokenizer
        self._made: dict[float, list[SamplingParams | None]] = {}
        self._requests = self._at(1.0 if temperature is None else temperature)  # refuses wrong arguments now
        self._host: ExportHost | None = None
        self._last_host: ExportHost | None = None
        self._call: GenerateCall | None = None
        self._texts: RecognizedTexts | None = None
        self._thread = 0

    def reset(self) -> None:
        """Forget the rows, so that the next call begins a generation. For loops other than ``generate``."""
        self._call = self._texts = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Edit the scores of a step.

        The first step raises ValueError if the arguments do not fit the batch or the vocabulary.
        """
        ids: Ids = input_ids.numpy(force=True)
        local, assists = locals_of_generate(self)
        if local is None:
            self._call = None
            if self._texts is None or not self._texts.continue_in(ids):
                self._claim(self._texts is not None, "call reset() before another thread uses it, or ")
                padding = np.cumsum(ids != self._pad, axis=1) == 0
                temperature = 1.0 if self._temperature is None else self._temperature
                self._texts = self._begin(ids, padding, len(self._given), temperature)
        elif self._call is None or not self._call.is_still(local):
            self._claim(self._call is not None and self._call.runs, "")
            call = GenerateCall(self, local)
            prompts: Ids = call.prompts.numpy(force=True)
            padding = np.zeros(prompts.shape, bool) if call.mask is None else call.mask.numpy(force=True) == 0
            temperature = call.temperature if self._temperature is None else self._temperature
            self._texts = self._begin(prompts, padding, call.batch_size, temperature)
            self._call = call
        assert self._texts is not None
        if assists and not (self._host and self._host.vocab_size == scores.shape[1] and self._texts.begin(ids)):
            return scores  # an assistant model may have another tokenizer; the main model judges its tokens
        if self._host is None:
            self._host = self._host_for(scores)
        return self._host.process(scores, self._texts.rows(ids))  # type: ignore[return-value]

    def _claim(self, runs: bool, remedy: str) -> None:
        """Begin a generation in this thread. Raises RuntimeError if a generation ``runs`` in another thread."""
        thread = threading.get_ident()
        if runs and thread != self._thread:
            raise RuntimeError(
                f"the exported {self._cls.__qualname__} serves a generation of another thread: {remedy}"
                "export the class once per thread"
            )
        self._thread = thread

    def _begin(self, shown: Ids, padding: np.ndarray[Any, Any], prompts: int, temperature: float) -> RecognizedTexts:
        self._requests = self._at(temperature)
        requests, name, rows = self._requests, self._cls.__qualname__, shown.shape[0]
        if len(requests) not in (1, prompts) or rows % len(requests):
            raise ValueError(f"{name} was exported with the arguments of {len(requests)} prompts, not of {prompts}")
        if self._host is not None:
            self._last_host, self._host = self._host, None
        each = rows // len(requests)
        return RecognizedTexts(shown, padding, [requests[i // each] for i in range(rows)])

    def _host_for(self, scores: torch.Tensor) -> ExportHost:
        """Return the host of a new generation: the last host if vocabulary size and device are the same."""
        vocab_size, device, last = scores.shape[1], scores.device, self._last_host
        for request in self._requests:
            if request is not None:
                check_vocabulary(self._cls, request, vocab_size)
        if last is not None and last.vocab_size == vocab_size and last.device == device:
            return last
        return ExportHost(self._cls, vocab_size, device, tokenizer=self._tokenizer)

    def _at(self, temperature: float) -> list[SamplingParams | None]:
        if temperature not in self._made:
            self._made[temperature] = [
                None if item is None else sampling_params(self._cls, item, temperature) for item in self._given
            ]
        return self._made[temperature]
