"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lpkit.columns.buffer import Table
from lpkit.columns.transfer import sent
from lpkit.columns.widths import padded
from lpkit.history.base import SHORTEST, History, HistoryParts
from lpkit.kernels import fused
from lpkit.kernels.recording import SlotHistories

PLACEHOLDER = -1
"""Stands in the engine's output list for a token that the device has sampled and the host has not seen."""


@dataclass(slots=True)
class AdmittedRequest:
    """An admitted request; never changed. Both lists belong to the engine, and ``output_ids`` is live."""

    slot: int
    prompt_ids: list[int] | None
    output_ids: list[int]


class V1History:
    """Device copies of a processor's histories, one buffer row for each slot.

    Args:
        slots: how many requests can hold a slot.
        device: where histories are read.
        keep_tokens: False when only lengths are declared.
    """

    def __init__(self, slots: int, device: torch.device, keep_tokens: bool) -> None:
        self._device = device
        self._keep = keep_tokens
        self._buffer = torch.zeros(slots, 0, dtype=torch.int64, device=device)
        self._staged = [0] * slots  # tokens of each slot that the buffer holds
        self._last = [PLACEHOLDER] * slots  # the last of them, to notice a list that was rewritten
        self._width = 0
        self._prompts = Table(slots + 1, 1, torch.int64, 0, device)  # the last: rows of other requests

    def leave(self, slot: int) -> None:
        """Forget a slot's history: its request left."""
        self._staged[slot] = 0

    def sync(self, entries: Sequence[AdmittedRequest]) -> list[bool]:
        """Bring lengths, and tokens if declared, up to date for this step's rows; one copy to the device.

        Return for each entry if its history is complete. A history with an unrepaired placeholder is not complete.
        """
        prompt = [len(entry.prompt_ids or ()) for entry in entries]
        total, complete, new = self._missing(entries, prompt)
        packed = self._send([*prompt, *total], new)
        n = len(prompt)
        self._lengths = packed[:n], packed[n:]
        return complete

    def texts(self, own: Sequence[tuple[int, AdmittedRequest]], rows: int) -> tuple[SlotHistories, bool]:
        """Bring the histories up to date like :meth:`sync`, for kernels that read them by slot.

        Args:
            own: admitted requests and their rows.
            rows: of the batch.

        Returns:
            The histories, and True if all are complete; rows without a complete history are not edited.
        """
        entries = [entry for _, entry in own]
        total, complete, new = self._missing(entries, [len(entry.prompt_ids or ()) for entry in entries])
        last = [-1] * rows
        for (row, _), length, whole in zip(own, total, complete, strict=True):
            if whole:
                last[row] = length - 1
        packed = self._send(last, new)
        self._prompts.flush()
        outputs = max(len(entry.output_ids) for entry in entries)
        return SlotHistories(self._buffer, self._prompts.device, packed, self._width, outputs), all(complete)

    def _missing(
        self, entries: Sequence[AdmittedRequest], prompt: Sequence[int]
    ) -> tuple[list[int], list[bool], tuple[list[int], list[int], list[int]]]:
        """Return lengths; if each history is complete; and slots, positions and tokens that the buffer lacks."""
        total = [n + len(entry.output_ids) for n, entry in zip(prompt, entries, strict=True)]
        complete = [True] * len(entries)
        where: list[int] = []
        positions: list[int] = []
        values: list[int] = []
        if self._keep:
            staged, last = self._staged, self._last
            for i, entry in enumerate(entries):
                slot, output, length = entry.slot, entry.output_ids, total[i]
                if staged[slot] == length - 1 and len(output) > 1 and output[-2] == last[slot]:
                    token = output[-1]
                    if token != PLACEHOLDER:  # the usual step: one more token
                        staged[slot], last[slot] = length, token
                        where.append(slot)
                        positions.append(length - 1)
                        values.append(token)
                        continue
                new, first = self._unstaged(entry, prompt[i])
                complete[i] = staged[slot] == length
                where += [slot] * len(new)
                positions += range(first, first + len(new))
                values += new
            self._reserve(max(total, default=0))
        return total, complete, (where, positions, values)

    def _send(self, numbers: list[int], new: tuple[list[int], list[int], list[int]]) -> torch.Tensor:
        """Return numbers on the device, and write new tokens into the buffer; one copy."""
        where, positions, values = new
        packed = sent(torch.from_numpy(np.array([*numbers, *where, *positions, *values], dtype=np.int64)), self._device)
        if not values:
            return packed
        count = len(values)
        found, slots, columns, tokens = packed.split_with_sizes((len(numbers), count, count, count))
        self._buffer[slots, columns] = tokens
        return found

    def _unstaged(self, entry: AdmittedRequest, prompt_len: int) -> tuple[Sequence[int], int]:
        """Return the tokens that the buffer lacks, and the position of the first."""
        slot, output = entry.slot, entry.output_ids
        staged = self._staged[slot]
        total = prompt_len + len(output)
        rewritten = staged > prompt_len and staged <= total and output[staged - prompt_len - 1] != self._last[slot]
        if staged > total or rewritten:
            staged = min(staged, prompt_len)  # the prompt never changes while a request holds its slot
        new: list[int] = []
        if staged < prompt_len:
            new += (entry.prompt_ids or [])[staged:]
        if not staged:
            self._prompts.write(slot, [prompt_len])
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
        slots, have = self._buffer.shape
        if self._width > have:
            with torch.inference_mode(False):  # the engine may call inside and outside of this mode
                grown = torch.zeros(slots, self._width, dtype=torch.int64, device=self._device)
            grown[:, :have] = self._buffer
            self._buffer = grown

    def of(self, slots: torch.Tensor, chosen: torch.Tensor | None = None) -> History:
        """Return the histories that the last :meth:`sync` brought.

        Args:
            slots: int64 ``[n]`` of the rows, on the device.
            chosen: int64 ``[n]``, numbers of their entries; None: all.
        """
        prompt_len, total_len = self._lengths
        lengths = (prompt_len, total_len) if chosen is None else (prompt_len[chosen], total_len[chosen])
        return _Staged(self._buffer, slots, lengths, self._width if self._keep else 0)


class _Staged(History):
    """Rows of a :class:`V1History`; width 0 means lengths only."""

    def __init__(
        self, buffer: torch.Tensor, slots: torch.Tensor, lengths: tuple[torch.Tensor, torch.Tensor], width: int
    ) -> None:
        self._buffer = buffer
        self._slots = slots
        self._staged = lengths
        self._width = width

    def _find_all(self) -> HistoryParts | None:
        few = fused.few_for(self._buffer)
        if few is None or not self._width:
            return None
        return HistoryParts(*self._staged, *few.staged_history(self._buffer, self._slots, *self._staged, self._width))

    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._staged

    def _find_tokens(self) -> torch.Tensor:
        held = self._buffer[:, : self._width].index_select(0, self._slots)
        behind = torch.arange(self._width, device=held.device) >= self.lengths[1].unsqueeze(1)
        return held.masked_fill_(behind, -1)
