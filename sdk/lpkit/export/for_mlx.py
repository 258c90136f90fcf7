"""For mlx-lm: one sequence per call, arrays of another library, and drafts that are called as any other token is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
import torch

from lpkit.export.host import ExportHost, check_vocabulary, sampling_params
from lpkit.export.recognition import Recognizer


class ExportedCallable:
    """One of lpkit's processors for mlx-lm; :func:`lpkit.export.mlx` makes it.

    Args:
        cls: a processor's class.
        given: arguments of each sequence.
        temperature: that divides the logits afterwards.
        tokenizer: that the processor may ask for.
    """

    def __init__(
        self, cls: type[Any], given: Mapping[str, Any], *, temperature: float = 1.0, tokenizer: Any = None
    ) -> None:
        self._cls, self._tokenizer = cls, tokenizer
        self._params = sampling_params(cls, given, temperature)
        self._sequences = Recognizer(self._params)
        self._host: ExportHost | None = None

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Edit the logits of a token.

        Args:
            tokens: ``[length]``, the prompt and what was generated.
            logits: ``[1, vocab]``, of any floating dtype.

        Returns:
            Logits of the same shape and dtype.

        Raises:
            ValueError: at the first call: a token id among the arguments is not in the vocabulary.
        """
        if self._host is None:
            check_vocabulary(self._cls, self._params, logits.shape[-1])
            self._host = ExportHost(self._cls, logits.shape[-1], torch.device("cpu"), tokenizer=self._tokenizer)
        row = self._sequences.row(tokens.tolist())
        # numpy has no bfloat16, and processors see float32 anyway.
        edited = self._host.process(torch.from_numpy(np.array(logits.astype(mx.float32))), [row])
        return mx.array(edited.numpy()).astype(logits.dtype)
