"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lpkit.columns.transfer import sent
from lpkit.columns.widths import padded
from lpkit.history.base import SHORTEST, History, HistoryParts, Originals
from lpkit.kernels import fused

Ints = np.ndarray[Any, np.dtype[np.int64]]

PLACEHOLDER = -1
"""Stands in the engine's output list for a token that the device has sampled and the host has not seen."""


@dataclass(slots=True)
class AdmittedRequest:
    """An admitted request; never changed. Both lists belong to the engine, and ``output_ids`` is live."""

    slot: int
    prompt_ids: list[int] | None
    output_ids: list[int]


class V1History:
    """Device copies of histories, one buffer row ("place") each, for all processors of an engine.

    The engine gives the same lists to all of its processors, so the lists identify a history. Processors with the same
    lists share a copy, and the first to ask brings it up to date. A place is kept while any processor holds it.

    Args:
        places: initial number of places.
        device: where histories are read.
        keep_tokens: False when only lengths are declared.
    """

    _of_engines: weakref.WeakValueDictionary[tuple[int, torch.device, bool], V1History] = weakref.WeakValueDictionary()

    def __init__(self, places: int, device: torch.device, keep_tokens: bool) -> None:
        self._device = device
        self._keep = keep_tokens
        self._buffer = torch.zeros(places, 0, dtype=torch.int64, device=device)
        self._staged = [0] * places  # tokens of each place that the buffer holds
        self._last = [PLACEHOLDER] * places  # the last of them, to notice a list that was rewritten
        self._free = list(range(places - 1, -1, -1))
        self._held: dict[tuple[int, int], int] = {}  # by the ids of the lists, which entries keep alive
        self._holders: dict[int, tuple[AdmittedRequest, int]] = {}  # by place, with the number of holders
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._lengths: tuple[torch.Tensor, torch.Tensor] | None = None
        # The same on the host, and a watch for edits by processors; None while there is only one processor.
        self._host_lengths: list[list[int]] = []
        self._originals: Originals | None = None
        self._width = 0
        self._config: object = None

    @classmethod
    def among(cls, user: object, config: object, places: int, device: torch.device, keep_tokens: bool) -> V1History:
        """Return the history that all processors with this configuration share; ``user`` is one of the processors."""
        key = (id(config), device, keep_tokens)
        history = cls._of_engines.get(key)
        if history is None:
            history = cls._of_engines[key] = cls(places, device, keep_tokens)
            history._config = config  # kept alive, so that no other configuration gets its id
        history._users.add(user)
        return history

    def enter(self, entry: AdmittedRequest) -> int:
        """Return the place of a request's history; it is held until :meth:`leave`."""
        key = (id(entry.prompt_ids), id(entry.output_ids))
        place = self._held.get(key)
        if place is None:
            if not self._free:
                self._add_places()
            place = self._held[key] = self._free.pop()
            self._staged[place] = 0
            self._holders[place] = (entry, 0)
        holder, holders = self._holders[place]
        self._holders[place] = (holder, holders + 1)
        return place

    def leave(self, place: int) -> None:
        """Give up one hold on a place."""
        entry, holders = self._holders[place]
        if holders > 1:
            self._holders[place] = (entry, holders - 1)
            return
        del self._holders[place], self._held[id(entry.prompt_ids), id(entry.output_ids)]
        self._free.append(place)

    def sync(self, places: Sequence[int], entries: Sequence[AdmittedRequest]) -> list[bool]:
        """Bring lengths, and tokens if declared, up to date for this step's rows; at most one copy to the device.

        Return for each entry if its history is complete. A history with an unrepaired placeholder is not complete.
        """
        prompt = [len(entry.prompt_ids or ()) for entry in entries]
        total = [n + len(entry.output_ids) for n, entry in zip(prompt, entries, strict=True)]
        complete = [True] * len(entries)
        where: list[int] = []
        positions: list[int] = []
        values: list[int] = []
        if self._keep:
            staged, last = self._staged, self._last
            for i, (place, entry) in enumerate(zip(places, entries, strict=True)):
                output, length = entry.output_ids, total[i]
                have = staged[place]
                if have == length - 1 and len(output) > 1 and output[-2] == last[place]:
                    token = output[-1]
                    if token != PLACEHOLDER:  # the usual step: one more token
                        staged[place], last[place] = length, token
                        where.append(place)
                        positions.append(length - 1)
                        values.append(token)
                        continue
                elif have == length and output and output[-1] == last[place]:
                    continue  # another processor has brought it up to date
                new, first = self._unstaged(place, entry, prompt[i])
                complete[i] = staged[place] == length
                where += [place] * len(new)
                positions += range(first, first + len(new))
                values += new
            self._reserve(max(total, default=0))
        self._send(prompt, total, [*where, *positions, *values])
        return complete

    def _send(self, prompt: list[int], total: list[int], new: list[int]) -> None:
        """Send lengths, unless another processor has sent them, and new tokens: places, positions and values."""
        lengths = [prompt, total]
        if not new and self._originals is not None and self._host_lengths == lengths and self._originals.untouched:
            return
        numbers = np.array([*prompt, *total, *new], dtype=np.int64)
        self._host_lengths, self._originals = lengths, None
        if len(self._users) < 2:
            packed = sent(torch.from_numpy(numbers), self._device)
        else:
            self._originals = Originals()
            packed = self._originals.made(lambda: sent(torch.from_numpy(numbers), self._device))
        n = len(prompt)
        self._lengths = packed[:n], packed[n : 2 * n]
        if new:
            place, position, value = packed[2 * n :].view(3, -1)
            self._buffer[place, position] = value

    def _unstaged(self, place: int, entry: AdmittedRequest, prompt_len: int) -> tuple[Sequence[int], int]:
        """Return the tokens that the buffer lacks, and the position of the first."""
        output = entry.output_ids
        staged = self._staged[place]
        total = prompt_len + len(output)
        rewritten = staged > prompt_len and staged <= total and output[staged - prompt_len - 1] != self._last[place]
        if staged > total or rewritten:
            staged = min(staged, prompt_len)  # the prompt never changes while a request holds its slot
        new: list[int] = []
        if staged < prompt_len:
            new += (entry.prompt_ids or [])[staged:]
        for token in output[max(staged - prompt_len, 0) :]:
            if token == PLACEHOLDER:
                break
            new.append(token)
        self._staged[place] = staged + len(new)
        if new:
            self._last[place] = new[-1]
        return new, staged

    def _reserve(self, width: int) -> None:
        self._width = padded(width, SHORTEST)
        if self._width > self._buffer.shape[1]:
            self._grow(len(self._staged), self._width)

    def _add_places(self) -> None:
        """Double the places; processors return theirs one after the other."""
        have = len(self._staged)
        self._free += range(2 * have - 1, have - 1, -1)
        self._staged += [0] * have
        self._last += [PLACEHOLDER] * have
        self._grow(2 * have, self._buffer.shape[1])

    def _grow(self, places: int, width: int) -> None:
        with torch.inference_mode(False):  # processors may be called inside and outside of this mode
            grown = torch.zeros(places, width, dtype=torch.int64, device=self._device)
        grown[: self._buffer.shape[0], : self._buffer.shape[1]] = self._buffer
        self._buffer = grown

    def of(self, places: torch.Tensor, chosen: torch.Tensor | None = None) -> History:
        """Return the histories that the last :meth:`sync` brought.

        Args:
            places: int64 ``[n]`` of the rows, on the device.
            chosen: int64 ``[n]``, numbers of their entries; None: all.
        """
        assert self._lengths is not None
        prompt_len, total_len = self._lengths
        lengths = (prompt_len, total_len) if chosen is None else (prompt_len[chosen], total_len[chosen])
        return _Staged(self._buffer, places, lengths, self._width if self._keep else 0)


class _Staged(History):
    """Rows of a :class:`V1History`; width 0 means lengths only."""

    def __init__(
        self, buffer: torch.Tensor, places: torch.Tensor, lengths: tuple[torch.Tensor, torch.Tensor], width: int
    ) -> None:
        self._buffer = buffer
        self._places = places
        self._staged = lengths
        self._width = width

    def _find_all(self) -> HistoryParts | None:
        few = fused.few_for(self._buffer)
        if few is None or not self._width:
            return None
        return HistoryParts(*self._staged, *few.staged_history(self._buffer, self._places, *self._staged, self._width))

    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._staged

    def _find_tokens(self) -> torch.Tensor:
        held = self._buffer[:, : self._width].index_select(0, self._places)
        behind = torch.arange(self._width, device=held.device) >= self.lengths[1].unsqueeze(1)
        return held.masked_fill_(behind, -1)
