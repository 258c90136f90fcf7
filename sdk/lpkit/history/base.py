"""Lengths and token ids of some rows, the same for both runners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch

ResultT = TypeVar("ResultT")

SHORTEST = 64
"""Least width of :attr:`History.tokens`, however short the texts are."""


class HistoryParts(NamedTuple):
    """All parts of some rows' histories, read in one launch; see :class:`lpkit.Rows`."""

    prompt_len: torch.Tensor
    total_len: torch.Tensor
    tokens: torch.Tensor
    is_output: torch.Tensor


class Originals:
    """Tensors that several readers share. It notices if a reader changed any of them in place by torch's operations."""

    def __init__(self) -> None:
        self._versions: list[tuple[torch.Tensor, int]] = []

    def made(self, make: Callable[[], ResultT]) -> ResultT:
        """Call ``make`` and watch the tensors in its result. Torch counts in-place changes except in inference mode."""
        with torch.inference_mode(False):
            made = make()
        parts = made if isinstance(made, tuple) else (made,)
        self._versions += [(part, part._version) for part in parts if isinstance(part, torch.Tensor)]
        return made

    @property
    def untouched(self) -> bool:
        """True if no tensor has changed."""
        return all(part._version == version for part, version in self._versions)


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
