"""Token histories under V1: staged from the engine's host lists to the device, new tokens only."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lpkit.columns.transfer import sent
from lpkit.columns.widths import padded
from lpkit.history.base import SHORTEST, History, Originals, Seen
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
    """Device copies of histories, each in a place of its own, for all processors of an engine.

    A history is known by its lists, which the engine gives to all of its processors: a copy is right for all that hold
    these, and is brought up to date by the first that asks. A place is kept while anybody holds it.

    Args:
        places: how many there are at first.
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
        self._holders: dict[int, tuple[Entry, int]] = {}  # by place: an entry with these lists, and how many hold it
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._lengths: tuple[torch.Tensor, torch.Tensor] | None = None
        # The same on the host, and what tells whether a processor has edited them; None while there is only one.
        self._host_lengths: list[list[int]] = []
        self._originals: Originals | None = None
        self._width = 0
        self._config: object = None

    @classmethod
    def among(cls, user: object, config: object, places: int, device: torch.device, keep_tokens: bool) -> V1History:
        """That of the processors which are given this configuration; ``user`` is one of them."""
        key = (id(config), device, keep_tokens)
        found = cls._of_engines.get(key)
        if found is None:
            found = cls._of_engines[key] = cls(places, device, keep_tokens)
            found._config = config  # held, so that no other engine's has its id
        found._users.add(user)
        return found

    def enter(self, entry: Entry) -> int:
        """The place of a request's history, which is held until it is given back."""
        key = (id(entry.prompt_ids), id(entry.output_ids))
        place = self._held.get(key)
        if place is None:
            if not self._free:
                self._add_places()
            place = self._held[key] = self._free.pop()
            self._staged[place] = 0
            self._holders[place] = (entry, 0)
        known, holders = self._holders[place]
        self._holders[place] = (known, holders + 1)
        return place

    def leave(self, place: int) -> None:
        """One holder less."""
        entry, holders = self._holders[place]
        if holders > 1:
            self._holders[place] = (entry, holders - 1)
            return
        del self._holders[place], self._held[id(entry.prompt_ids), id(entry.output_ids)]
        self._free.append(place)

    def sync(self, places: Sequence[int], entries: Sequence[Entry]) -> list[bool]:
        """Bring lengths, and tokens if declared, up to date for this step's rows; at most one copy to the device.

        Returns, per entry, whether its history is complete. It is not while an unrepaired placeholder is in it.
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
                known = staged[place]
                if known == length - 1 and len(output) > 1 and output[-2] == last[place]:
                    token = output[-1]
                    if token != PLACEHOLDER:  # what nearly every step brings: one more token
                        staged[place], last[place] = length, token
                        where.append(place)
                        positions.append(length - 1)
                        values.append(token)
                        continue
                elif known == length and output and output[-1] == last[place]:
                    continue  # another processor has seen to it
                new, first = self._unstaged(place, entry, prompt[i])
                complete[i] = staged[place] == length
                where += [place] * len(new)
                positions += range(first, first + len(new))
                values += new
            self._reserve(max(total, default=0))
        self._send(prompt, total, [*where, *positions, *values])
        return complete

    def _send(self, prompt: list[int], total: list[int], new: list[int]) -> None:
        """Lengths, unless another processor has sent them, and new tokens: places, positions and values."""
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

    def _unstaged(self, place: int, entry: Entry, prompt_len: int) -> tuple[Sequence[int], int]:
        """Tokens that the buffer lacks, and the position of the first."""
        output = entry.output_ids
        staged = self._staged[place]
        known = prompt_len + len(output)
        rewritten = staged > prompt_len and staged <= known and output[staged - prompt_len - 1] != self._last[place]
        if staged > known or rewritten:
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
        """Twice as many: processors give their places back one after the other."""
        have = len(self._staged)
        self._free += range(2 * have - 1, have - 1, -1)
        self._staged += [0] * have
        self._last += [PLACEHOLDER] * have
        self._grow(2 * have, self._buffer.shape[1])

    def _grow(self, places: int, width: int) -> None:
        with torch.inference_mode(False):  # processors may be called in this mode and outside of it
            grown = torch.zeros(places, width, dtype=torch.int64, device=self._device)
        grown[: self._buffer.shape[0], : self._buffer.shape[1]] = self._buffer
        self._buffer = grown

    def of(self, places: torch.Tensor, chosen: torch.Tensor | None = None) -> History:
        """What the last :meth:`sync` brought.

        Args:
            places: int64 ``[n]`` of the rows, on the device.
            chosen: int64 ``[n]``, which of the entries they are; None: all.
        """
        assert self._lengths is not None
        prompt_len, total_len = self._lengths
        lengths = (prompt_len, total_len) if chosen is None else (prompt_len[chosen], total_len[chosen])
        return _Staged(self._buffer, places, lengths, self._width if self._keep else 0)


class _Staged(History):
    """Rows of a :class:`V1History`; no width: lengths only."""

    def __init__(
        self, buffer: torch.Tensor, places: torch.Tensor, lengths: tuple[torch.Tensor, torch.Tensor], width: int
    ) -> None:
        self._buffer = buffer
        self._places = places
        self._staged = lengths
        self._width = width

    def _find_all(self) -> Seen | None:
        few = fused.few_for(self._buffer)
        if few is None or not self._width:
            return None
        return Seen(*self._staged, *few.staged_history(self._buffer, self._places, *self._staged, self._width))

    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._staged

    def _find_tokens(self) -> torch.Tensor:
        held = self._buffer[:, : self._width].index_select(0, self._places)
        behind = torch.arange(self._width, device=held.device) >= self.lengths[1].unsqueeze(1)
        return held.masked_fill_(behind, -1)
