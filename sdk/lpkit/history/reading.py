"""Lengths and token ids of some rows, read from where either runner keeps them."""

from __future__ import annotations

from functools import cached_property

import torch

from lpkit.kernels import fused
from lpkit.kernels.recording import SlotHistories

SHORTEST = 64
"""Least width of :attr:`History.tokens`, however short the texts are."""

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class History:
    """The histories of some rows of a step, on the device; each part is computed on first read.

    Args:
        texts: of ``kind`` 0 or 1.
        index: int64 ``[n]``, their rows in ``texts``.
        slots: int64 ``[n]``, slots of their requests.
        keep_tokens: False when only lengths are read.
    """

    def __init__(self, texts: SlotHistories, index: torch.Tensor, slots: torch.Tensor, keep_tokens: bool) -> None:
        last = texts.last
        self._texts = texts if keep_tokens else texts._replace(width=0, kind=0, drafts=last, committed=last)
        self._index = index
        self._slots = slots

    @cached_property
    def _seen(self) -> Parts | None:
        """All parts, read by one kernel; None without kernels."""
        few = fused.few_for(self._texts.held)
        return None if few is None else few.history(self._texts, self._index, self._slots)

    @cached_property
    def lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(prompt length, visible length), each int64 ``[n]``."""
        if self._seen is not None:
            return self._seen[:2]
        last, index = self._texts.last, self._index
        if index.shape != last.shape:
            last = last.index_select(0, index)
        return self._texts.prompts.index_select(0, self._slots).to(torch.int64), last.to(torch.int64) + 1

    @cached_property
    def tokens(self) -> torch.Tensor:
        """int64 ``[n, W]``: visible token ids, -1 behind the end."""
        if self._seen is not None:
            return self._seen[2]
        texts, visible = self._texts, self.lengths[1].unsqueeze(1)
        tokens = texts.held[:, : texts.width].index_select(0, self._slots).to(torch.int64)
        place = torch.arange(tokens.shape[1], device=tokens.device)
        if texts.kind == 1:
            # The draft at position q is the input of the row that lies (visible - 1 - q) rows further up.
            committed = texts.committed[self._slots].to(torch.int64).unsqueeze(1)
            source = self._index.unsqueeze(1) - (visible - 1 - place)
            drafted = texts.drafts[source.clamp(0, texts.drafts.shape[0] - 1)].to(torch.int64)
            tokens = torch.where(place < committed, tokens, drafted)
        return tokens.masked_fill_(place >= visible, -1)

    @cached_property
    def is_output(self) -> torch.Tensor:
        """bool ``[n, W]``: True where :attr:`tokens` were generated."""
        if self._seen is not None:
            return self._seen[3]
        place = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (place >= self.lengths[0].unsqueeze(1)) & (self.tokens >= 0)
