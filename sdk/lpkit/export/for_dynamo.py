"""NVIDIA Dynamo: one request's logits at a time, edited in place, without the request's identity."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lpkit.export.recognition import SequenceBySequence


class ExportedToDynamo(SequenceBySequence):
    """An lpkit processor as Dynamo's ``BaseLogitsProcessor``; :func:`lpkit.export.dynamo` makes it."""

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        """Edit a request's ``[vocab]`` logits in place.

        ``input_ids`` are the prompt and the outputs, or only the outputs; the worker decides. The first call raises
        ValueError if an argument holds a token id outside the vocabulary.
        """
        logits.copy_(self._edited(input_ids, logits.unsqueeze(0))[0])
