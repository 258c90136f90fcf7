"""For NVIDIA Dynamo: one request's logits at a time, edited in place, with nothing that names the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lpkit.export.host import ExportHost, check_vocabulary, sampling_params
from lpkit.export.recognition import Recognizer


class ExportedToDynamo:
    """One of lpkit's processors as Dynamo's ``BaseLogitsProcessor``; :func:`lpkit.export.dynamo` makes it.

    Args:
        cls: a processor's class.
        given: arguments of each request.
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

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        """Edit a request's logits in place.

        Args:
            input_ids: the prompt and the outputs, or the outputs, according to the worker.
            logits: ``[vocab]``.

        Raises:
            ValueError: at the first call: a token id among the arguments is not in the vocabulary.
        """
        if self._host is None:
            check_vocabulary(self._cls, self._params, logits.shape[0])
            self._host = ExportHost(self._cls, logits.shape[0], logits.device, tokenizer=self._tokenizer)
        logits.copy_(self._host.process(logits.unsqueeze(0), [self._sequences.row(input_ids)])[0])
