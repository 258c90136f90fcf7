"""mlx-lm: one sequence per call, arrays of another library, and drafts that look like any other token."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import torch

from lpkit.export.recognition import SequenceBySequence


class ExportedCallable(SequenceBySequence):
    """An lpkit processor for mlx-lm; :func:`lpkit.export.mlx` makes it."""

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Return a token's ``[1, vocab]`` logits, edited; ``tokens`` are prompt and outputs.

        The first call raises ValueError if an argument holds a token id outside the vocabulary.
        """
        # numpy has no bfloat16, and processors use float32.
        edited = self._edited(tokens.tolist(), torch.from_numpy(np.array(logits.astype(mx.float32))))
        return mx.array(edited.numpy()).astype(logits.dtype)
