"""Token histories under V1: staged from the engine's host lists to the device, new tokens only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lpkit.columns.transfer import sent
from lpkit.columns.widths import padded
from lpkit.history.base import SHORTEST, History, Seen
from lpkit.kernels import fused

Ints = np.ndarray[Any, np.dtype[np.int64]]

PLACEHOLDER = -1
"""What the engine's output list holds for a token that the device has sampled and the host not yet seen."""


@dataclass(slots=True)
class Entry:
    """An admitted request; never changed. ``output_ids`` is the engine's live list; both lists are the engine's."""

    slot: int
    prompt_ids: list[int] | None
    output_ids: list[int]


class V1History:
    """Device copy of the histories of admitted requests, by slot.

    Args:
        slots: number of slots.
        device: where histories are read.
        keep_tokens: False when only lengths are declared.
    """

    def __init__(self, slots: int, device: torch.device, keep_tokens: bool) -> None:
        self._device = device
        self._keep = keep_tokens
        self._slots = slots
        self._buffer = torch.zeros(slots + 1, 0, dtype=torch.int64, device=device)
        self._staged = [0] * (slots + 1)  # tokens of each slot that the buffer holds
        self._last = [PLACEHOLDER] * (slots + 1)  # the last of them, to notice a list that was rewritten
        self._lengths: tuple[torch.Tensor, torch.Tensor] | None = None
        self._width = 0

    def forget(self, slot: int) -> None:
        """A slot changed hands."""
        self._staged[slot] = 0

    def sync(self, entries: Sequence[Entry]) -> list[bool]:
        """Bring lengths, and tokens if declared, up to date for this step's rows; one copy to the device.

        Returns, per entry, whether its history is complete. It is not while an unrepaired placeholder is in it.
        """
        prompt = [len(entry.prompt_ids or ()) for entry in entries]
        total = [n + len(entry.output_ids) for n, entry in zip(prompt, entries, strict=True)]
        complete = [True] * len(entries)
        parts = [np.array([prompt, total], dtype=np.int64).reshape(-1)]
        slots: list[int] = []
        positions: list[int] = []
        values: list[int] = []
        if self._keep:
            staged, last = self._staged, self._last
            for i, entry in enumerate(entries):
                slot, output, length = entry.slot, entry.output_ids, total[i]
                if staged[slot] == length - 1 and len(output) > 1 and output[-2] == last[slot]:
                    token = output[-1]
                    if token != PLACEHOLDER:  # what nearly every step brings: one more token
                        staged[slot], last[slot] = length, token
                        slots.append(slot)
                        positions.append(length - 1)
                        values.append(token)
                        continue
                new, first = self._unstaged(entry, prompt[i])
                complete[i] = staged[slot] == length
                slots += [slot] * len(new)
                positions += range(first, first + len(new))
                values += new
            parts.append(np.array([slots, positions, values], dtype=np.int64).reshape(-1))
            self._reserve(max(total, default=0))
        packed = sent(torch.from_numpy(np.concatenate(parts)), self._device)
        n = len(entries)
        self._lengths = packed[:n], packed[n : 2 * n]
        if slots:
            slot_index, position, value = packed[2 * n :].view(3, -1)
            self._buffer[slot_index, position] = value
        return complete

    def _unstaged(self, entry: Entry, prompt_len: int) -> tuple[Sequence[int], int]:
        """Tokens that the buffer lacks, and the position of the first."""
        slot, output = entry.slot, entry.output_ids
        staged = self._staged[slot]
        known = prompt_len + len(output)
        rewritten = staged > prompt_len and staged <= known and output[staged - prompt_len - 1] != self._last[slot]
        if staged > known or rewritten:
            staged = min(staged, prompt_len)  # the prompt never changes while a request holds its slot
        new: list[int] = []
        if staged < prompt_len:
            new += (entry.prompt_ids or [])[staged:]
        for token in output[max(staged - prompt_len, 0) :]:
            if token == PLACEHOLDER:
                break
            new.append(token)
        self._staged[slot] = staged + len(new)
        if new:
            self._last[slot] = new[-1]
        return new, staged

    def _reserve(self, width: int) -> None:
        self._width = padded(width, SHORTEST)
        if self._width > self._buffer.shape[1]:
            grown = torch.zeros(self._slots + 1, self._width, dtype=torch.int64, device=self._device)
            grown[:, : self._buffer.shape[1]] = self._buffer
            self._buffer = grown

    def of(self, slots: torch.Tensor, chosen: torch.Tensor | None = None) -> History:
        """What the last :meth:`sync` brought.

        Args:
            slots: int64 ``[n]`` of the rows, on the device.
            chosen: int64 ``[n]``, which of the entries they are; None: all.
        """
        assert self._lengths is not None
        prompt_len, total_len = self._lengths
        lengths = self._lengths if chosen is None else (prompt_len[chosen], total_len[chosen])
        return _Staged(self._buffer, slots, lengths, self._width if self._keep else 0)


class _Staged(History):
    """Rows of a :class:`V1History`; no width: lengths only."""

    def __init__(
        self, buffer: torch.Tensor, slots: torch.Tensor, lengths: tuple[torch.Tensor, torch.Tensor], width: int
    ) -> None:
        self._buffer = buffer
        self._slots = slots
        self._staged = lengths
        self._width = width

    def _find_all(self) -> Seen | None:
        few = fused.few_for(self._buffer)
        if few is None or not self._width:
            return None
        return Seen(*self._staged, *few.staged_history(self._buffer, self._slots, *self._staged, self._width))

    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._staged

    def _find_tokens(self) -> torch.Tensor:
        held = self._buffer[:, : self._width].index_select(0, self._slots)
        behind = torch.arange(self._width, device=held.device) >= self.lengths[1].unsqueeze(1)
        return held.masked_fill_(behind, -1)
