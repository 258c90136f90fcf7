"""For NVIDIA Dynamo: one request's logits at a time, edited in place, with nothing that names the request."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lpkit.export.recognition import SequenceBySequence


class ExportedToDynamo(SequenceBySequence):
    """One of lpkit's processors as Dynamo's ``BaseLogitsProcessor``; :func:`lpkit.export.dynamo` makes it."""

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        """Edit a request's logits in place.

        Args:
            input_ids: the prompt and the outputs, or the outputs, according to the worker.
            logits: ``[vocab]``.

        Raises:
            ValueError: at the first call: a token id among the arguments is not in the vocabulary.
        """
        logits.copy_(self._edited(input_ids, logits.unsqueeze(0))[0])
