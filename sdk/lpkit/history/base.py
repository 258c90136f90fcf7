"""Lengths and token ids of some rows, whichever runner they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch

Found = TypeVar("Found")

SHORTEST = 64
"""Tokens that each row of :attr:`History.tokens` has room for, however short the texts are."""


class Seen(NamedTuple):
    """All that rows show of their histories, read in one launch; see :class:`lpkit.Rows`."""

    prompt_len: torch.Tensor
    total_len: torch.Tensor
    tokens: torch.Tensor
    is_output: torch.Tensor


class Originals:
    """Tensors that several readers are given: whether one of these has changed any in place, by torch's operations."""

    def __init__(self) -> None:
        self._versions: list[tuple[torch.Tensor, int]] = []

    def made(self, make: Callable[[], Found]) -> Found:
        """What ``make`` gives: a tensor, some, or none. Torch counts what is done to it, but in inference mode."""
        with torch.inference_mode(False):
            found = make()
        parts = found if isinstance(found, tuple) else (found,)
        self._versions += [(part, part._version) for part in parts if isinstance(part, torch.Tensor)]
        return found

    @property
    def untouched(self) -> bool:
        """Whether all are as they were made."""
        return all(part._version == version for part, version in self._versions)


class History(ABC):
    """What a set of rows shows of its histories, on the device; each part is found when it is first read."""

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
        """bool ``[n, W]``: which of :attr:`tokens` were generated."""
        return self._find_output() if self._seen is None else self._seen.is_output

    @cached_property
    def _seen(self) -> Seen | None:
        return self._find_all()

    @abstractmethod
    def _find_all(self) -> Seen | None:
        """All of it, where a kernel reads it; without tokens where only lengths are asked for."""

    @abstractmethod
    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """By torch's operations."""

    @abstractmethod
    def _find_tokens(self) -> torch.Tensor:
        """By torch's operations."""

    def _find_output(self) -> torch.Tensor:
        position = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (position >= self.lengths[0].unsqueeze(1)) & (self.tokens >= 0)
