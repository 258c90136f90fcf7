"""Lengths and token ids of some rows, the same for both runners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch

SHORTEST = 64
"""Least width of :attr:`History.tokens`, however short the texts are."""


class HistoryParts(NamedTuple):
    """All parts of some rows' histories, read in one launch; see :class:`lpkit.Rows`."""

    prompt_len: torch.Tensor
    total_len: torch.Tensor
    tokens: torch.Tensor
    is_output: torch.Tensor


class History(ABC):
    """The histories of some rows, on the device; each part is computed on first read."""

    @cached_property
    def lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(prompt length, visible length), each int64 ``[n]``."""
        return self._find_lengths() if self._seen is None else self._seen[:2]

    @cached_property
    def tokens(self) -> torch.Tensor:
        """int64 ``[n, W]``: visible token ids, -1 behind the end."""
        return self._find_tokens() if self._seen is None else self._seen.tokens

    @cached_property
    def is_output(self) -> torch.Tensor:
        """bool ``[n, W]``: True where :attr:`tokens` were generated."""
        return self._find_output() if self._seen is None else self._seen.is_output

    @cached_property
    def _seen(self) -> HistoryParts | None:
        return self._find_all()

    @abstractmethod
    def _find_all(self) -> HistoryParts | None:
        """Read all parts with one kernel, or return None if no kernel is available or only lengths are needed."""

    @abstractmethod
    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the lengths by torch's operations."""

    @abstractmethod
    def _find_tokens(self) -> torch.Tensor:
        """Compute the token ids by torch's operations."""

    def _find_output(self) -> torch.Tensor:
        position = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (position >= self.lengths[0].unsqueeze(1)) & (self.tokens >= 0)
