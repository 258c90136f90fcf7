"""For transformers: rows without identity, that beams copy and reorder, and padding on the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor

from lpkit.export.host import ExportHost, follow
from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams


class ExportedProcessor(LogitsProcessor):
    """One of lpkit's processors in ``generate``; :func:`lpkit.export.transformers` makes it.

    A call whose tokens are those of the call before and one more goes on with it; any other begins a generation, whose
    prompts are the tokens it shows.

    Args:
        cls: a processor's class.
        requests: of each prompt of the batch, or one for all.
        pad_token_id: what prompts are padded with on the left; None: they are not.
    """

    supports_continuous_batching = False

    def __init__(self, cls: type[Any], requests: Sequence[SamplingParams], pad_token_id: int | None = None) -> None:
        self._cls, self._requests, self._pad = cls, requests, pad_token_id
        self._host: ExportHost | None = None
        self._rows: list[V1Row] = []
        self._prompts: list[list[int]] = []
        self._width = 0

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Edit the scores of a step.

        Args:
            input_ids: ``[rows, tokens]`` int64, prompts and what was generated.
            scores: ``[rows, vocab]``.

        Returns:
            The edited scores.
        """
        if self._host is None:
            self._host = ExportHost(self._cls, scores.shape[1], scores.device)
        tokens = input_ids.tolist()
        if not self._goes_on(tokens):
            self._rows, self._width = [], len(tokens[0])
            self._prompts = [self._unpadded(row) for row in tokens]
        beams = len(tokens) // len(self._requests)
        rows = []
        for i, row in enumerate(tokens):
            before = self._rows[i] if self._rows else None
            rows.append(follow(before, self._requests[i // beams], self._prompts[i], row[self._width :]))
        self._rows = rows
        return self._host.process(scores, rows)  # type: ignore[return-value]

    def _goes_on(self, tokens: list[list[int]]) -> bool:
        """Whether each row continues one of the call before."""
        if len(tokens) != len(self._rows):
            return False
        known = {(*row.prompt_ids, *row.output_ids) for row in self._rows}
        return all(tuple(self._unpadded(row)[:-1]) in known for row in tokens)

    def _unpadded(self, row: list[int]) -> list[int]:
        start = next((i for i, token in enumerate(row) if token != self._pad), len(row))
        return row[start:]
