"""Rows without identity: an engine shows whole texts, copies and reorders them, and removes tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams

Ids = np.ndarray[Any, np.dtype[np.int64]]


class RecognizedTexts:
    """The texts of one generation, recognized by their tokens from step to step.

    Args:
        shown: ``[rows, width]``, the prompts as the engine shows them, padding included.
        is_padding: bool of the same shape.
        requests: request of each row; None: the row does not use the processor.
    """

    def __init__(
        self, shown: Ids, is_padding: np.ndarray[Any, np.dtype[np.bool_]], requests: Sequence[SamplingParams | None]
    ) -> None:
        self._shown = shown.copy()
        # Equal prompts share a list, which identifies copies of a row.
        lists: dict[tuple[int, ...], list[int]] = {}
        unpadded = [row[~pad].tolist() for row, pad in zip(shown, is_padding, strict=True)]
        self._prompts = [lists.setdefault(tuple(prompt), prompt) for prompt in unpadded]
        self._requests = requests
        self._rows: list[V1Row] = []
        self._tails = shown[:, :0]

    def continue_in(self, ids: Ids) -> bool:
        """True if each text equals a text of the previous step, with at most one token more."""
        width = self._tails.shape[1]
        new = ids.shape[1] - self._shown.shape[1] - width
        if new not in (0, 1) or not self.begin(ids):
            return False
        before = {tail.tobytes() for tail in self._tails}
        return all(tail.tobytes() in before for tail in ids[:, self._shown.shape[1] :][:, :width])

    def begin(self, ids: Ids) -> bool:
        """True if the texts begin with these prompts, row for row."""
        width = self._shown.shape[1]
        return ids.shape[0] == self._shown.shape[0] and np.array_equal(ids[:, :width], self._shown)

    def rows(self, ids: Ids) -> list[V1Row]:
        """Return a step's rows; ``ids`` :meth:`begin` with the prompts.

        A row of the previous step with one token more stays the same row.
        """
        tails = ids[:, self._shown.shape[1] :].copy()
        before, new = self._tails, tails.shape[1] - self._tails.shape[1]
        if new not in (0, 1) or not self._rows:
            # A V1 engine grows by one token per step, and V1 processors may rely on it: return the rows as resumed.
            self._rows = [
                V1Row(request, prompt, tail)
                for request, prompt, tail in zip(self._requests, self._prompts, tails.tolist(), strict=True)
            ]
        else:
            kept = tails[:, : before.shape[1]]
            same = (kept == before).all(axis=1)
            if not same.all():
                self._rows = self._reordered(kept, same)
            if new:
                for row, token in zip(self._rows, tails[:, -1].tolist(), strict=True):
                    row.output_ids.append(token)
        self._tails = tails
        return self._rows

    def _reordered(self, kept: Ids, same: np.ndarray[Any, np.dtype[np.bool_]]) -> list[V1Row]:
        """Return the rows of copied or swapped texts: one copy keeps the row, other copies get new rows."""
        unclaimed: dict[tuple[int, int, bytes], list[V1Row]] = {}
        for i, row in enumerate(self._rows):
            if not same[i]:
                unclaimed.setdefault(self._key(i, self._tails), []).append(row)
        rows = []
        for i, stays in enumerate(same.tolist()):
            if stays:
                rows.append(self._rows[i])
            elif unclaimed.get(key := self._key(i, kept)):
                rows.append(unclaimed[key].pop())
            else:
                rows.append(V1Row(self._requests[i], self._prompts[i], kept[i].tolist()))
        return rows

    def _key(self, i: int, tails: Ids) -> tuple[int, int, bytes]:
        return id(self._requests[i]), id(self._prompts[i]), tails[i].tobytes()
