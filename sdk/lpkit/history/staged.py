"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, itemgetter

import numpy as np
import torch

from lpkit.columns.buffer import Table
from lpkit.columns.transfer import Outbox, sent
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


_NEWEST, _SECOND = itemgetter(-1), itemgetter(-2)

_NO_OUTPUT = [0, 0]
"""Stands for the output of a row without a history to read."""


@dataclass(slots=True)
class _Steady:
    """The rows of a step, while each output grows by one token in each step.

    Attributes:
        own, rows: as :meth:`V1History.texts` gets them.
        outbox: memory of ``places`` and of two tensors of ``texts``.
        places, texts: what it returns.
        slots, before, outputs, grow: for each row its slot, position before the output, output, and 1 if that grows.
        due: lengths of the outputs in the next step.
        last, newest: position and value of each row's last token in this step.
    """

    own: Sequence[tuple[int, AdmittedRequest]]
    rows: int
    outbox: Outbox
    places: torch.Tensor
    texts: SlotHistories
    slots: list[int]
    before: list[int]
    outputs: list[list[int]]
    grow: list[int]
    due: list[int]
    last: list[int]
    newest: list[int]


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
        self._outboxes: dict[int, Outbox] = {}  # by the number of rows
        self._steady: _Steady | None = None

    def leave(self, slot: int) -> None:
        """Forget a slot's history: its request left."""
        self._settle()
        self._staged[slot] = 0

    def sync(self, entries: Sequence[AdmittedRequest]) -> list[bool]:
        """Bring lengths, and tokens if declared, up to date for this step's rows; one copy to the device.

        Return for each entry if its history is complete. A history with an unrepaired placeholder is not complete.
        """
        self._steady = None  # if the kernels of this step's texts did not run, they stored nothing
        prompt = [len(entry.prompt_ids or ()) for entry in entries]
        total, complete, new = self._missing(entries, prompt)
        packed = self._send([*prompt, *total], new)
        n = len(prompt)
        self._lengths = packed[:n], packed[n:]
        return complete

    def texts(self, own: Sequence[tuple[int, AdmittedRequest]], rows: int) -> tuple[torch.Tensor, SlotHistories, bool]:
        """Bring the histories up to date, for kernels that read them by slot; they must run before the next call.

        In the usual step each output grew by one token, which the kernels store. All else takes :meth:`_slowly`.

        Args:
            own: admitted requests and their rows; the same object while nothing changes.
            rows: of the batch.

        Returns:
            The slot of each row, int64 ``[rows]``, the histories, and True if all are complete; a row without a
            complete history has the slot of nobody.
        """
        steady = self._steady
        if steady is None or steady.own is not own or steady.rows != rows:
            return self._slowly(own, rows)
        outputs = steady.outputs
        lengths = list(map(len, outputs))
        if lengths != steady.due:
            return self._slowly(own, rows)
        newest, last = list(map(_NEWEST, outputs)), list(map(add, steady.before, lengths))
        if self._keep:
            rewritten = list(map(_SECOND, outputs)) != steady.newest
            longer = max(last) >= steady.texts.width or max(lengths) > steady.texts.outputs
            if rewritten or longer or PLACEHOLDER in newest:
                return self._slowly(own, rows)
        steady.due, steady.last, steady.newest = list(map(add, lengths, steady.grow)), last, newest
        steady.outbox.send((*steady.slots, *last, *newest))
        return steady.places, steady.texts, True

    def _slowly(
        self, own: Sequence[tuple[int, AdmittedRequest]], rows: int
    ) -> tuple[torch.Tensor, SlotHistories, bool]:
        self._settle()
        entries = [entry for _, entry in own]
        total, complete, new = self._missing(entries, [len(entry.prompt_ids or ()) for entry in entries])
        if new[2]:
            self._send([], new)
        self._prompts.flush()
        nobody = len(self._staged)
        slots, before, last, newest = [nobody] * rows, [-1] * rows, [-1] * rows, [0] * rows
        outputs, grow = [_NO_OUTPUT] * rows, [0] * rows
        for (row, entry), length, whole in zip(own, total, complete, strict=True):
            if whole:
                slots[row], last[row], outputs[row], grow[row] = entry.slot, length - 1, entry.output_ids, 1
                before[row] = length - 1 - len(entry.output_ids)
                newest[row] = (entry.output_ids or entry.prompt_ids or (0,))[-1]
        if rows not in self._outboxes:
            self._outboxes[rows] = Outbox(3 * rows, self._device)
        outbox = self._outboxes[rows]
        outbox.send((*slots, *last, *newest))
        places, lasts, tokens = outbox.device.view(3, rows).unbind()
        longest = min(self._width, padded(max(map(len, outputs)), SHORTEST))
        drafts, kind = (tokens, 2) if self._keep else (lasts, 0)
        texts = SlotHistories(self._buffer, self._prompts.device, lasts, drafts, lasts, self._width, longest, kind)
        if all(complete) and all(outputs):
            due = [len(output) + more for output, more in zip(outputs, grow, strict=True)]
            self._steady = _Steady(own, rows, outbox, places, texts, slots, before, outputs, grow, due, last, newest)
        return places, texts, all(complete)

    def _settle(self) -> None:
        """Note what the kernels stored in steady steps."""
        steady, self._steady = self._steady, None
        if steady is not None and self._keep:
            for row, entry in steady.own:
                self._staged[entry.slot], self._last[entry.slot] = steady.last[row] + 1, steady.newest[row]

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
        for entry, length in zip(entries, prompt, strict=True):
            if not (self._keep or self._staged[entry.slot]):
                self._staged[entry.slot] = 1
                self._prompts.write(entry.slot, [length])
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
