"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, itemgetter
from typing import Any

import numpy as np
import torch

from lpkit.columns.buffer import Table
from lpkit.columns.transfer import Outbox, sent
from lpkit.columns.widths import padded
from lpkit.history.reading import SHORTEST
from lpkit.kernels.recording import SlotHistories

PLACEHOLDER = -1
"""Stands in the engine's output list for a token that the device has sampled and the host has not seen."""


@dataclass(slots=True)
class AdmittedRequest:
    """An admitted request; never changed. Both lists belong to the engine, and ``output_ids`` is live."""

    slot: int
    prompt_ids: list[int] | None
    output_ids: list[int]


Own = Sequence[tuple[int, AdmittedRequest]]
"""Rows, and the admitted requests in them."""

_NEWEST, _SECOND = itemgetter(-1), itemgetter(-2)

_NO_OUTPUT = [0, 0]
"""Stands for the output of a row without a history to read."""


class _LastStep:
    """The rows of the last step, and for each what comes next if its output grows by one token.

    Attributes:
        reader, own: as :meth:`V1History.texts` gets them.
        wanted: the request of each row; None where there is none.
        unripe: rows that must be looked at in the next step: without output, or not complete.
        outbox, places, texts: memory that a step's numbers are sent to, and what is returned.
        entries: the request of each row whose history is complete.
        slots, before, outputs, grow: for each row its slot, position before the output, output, and 1 if that grows.
        due: lengths of the outputs in the next step.
        last, newest: position and value of each row's last token in this step.
        room: number of steps until a text or an output may be longer than ``texts`` says.
    """

    outbox: Outbox
    places: torch.Tensor
    texts: SlotHistories

    def __init__(self, reader: str) -> None:
        self.reader = reader
        self.own: Own = ()
        self.wanted: list[AdmittedRequest | None] = []
        self.unripe: list[int] = []
        self.entries: list[AdmittedRequest | None] = []
        self.slots: list[int] = []
        self.before: list[int] = []
        self.outputs: list[list[int]] = []
        self.grow: list[int] = []
        self.due: list[int] = []
        self.last: list[int] = []
        self.newest: list[int] = []
        self.room = 0

    @property
    def by_row(self) -> tuple[list[Any], ...]:
        """The lists with an element for each row that :meth:`V1History._nobody` has, too."""
        return self.entries, self.slots, self.before, self.outputs, self.grow, self.due, self.last, self.newest


class V1History:
    """Device copies of a processor's histories, one buffer row for each slot and one for nobody.

    Args:
        slots: how many requests can hold a slot.
        device: where histories are read.
        keep_tokens: False when only lengths are declared.
    """

    def __init__(self, slots: int, device: torch.device, keep_tokens: bool) -> None:
        self._device = device
        self._keep = keep_tokens
        self._buffer = torch.zeros(slots + 1, 0, dtype=torch.int64, device=device)  # the last: rows of other requests
        self._staged = [0] * slots  # tokens of each slot that the buffer holds, without what readers stored since
        self._last = [PLACEHOLDER] * slots  # the last of them, to notice a list that was rewritten
        self._left: set[int] = set()  # slots whose requests left since the last step
        self._width = 0
        self._prompts = Table(slots + 1, 1, torch.int64, 0, device)
        self._outboxes: dict[int, Outbox] = {}  # by the number of rows
        self._step: _LastStep | None = None

    def leave(self, slot: int) -> None:
        """Forget a slot's history: its request left."""
        self._left.add(slot)
        self._staged[slot] = 0

    def texts(self, own: Own, rows: int, reader: str) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        """Bring the histories up to date; the reader must store the rows' newest tokens before the next call.

        In the usual step each output grew by one token, which only the reader stores. Any other row is staged anew.

        Args:
            own: admitted requests and their rows; the same object while nothing changes.
            rows: of the batch.
            reader: another reader than that of the last step does not rely on what that stored.

        Returns:
            The slot of each row, int64 ``[rows]``, the histories, and the rows whose history is not complete, because
            it has an unrepaired placeholder: they have the slot of nobody.
        """
        step = self._step
        if step is None or step.reader != reader:
            step = self._step = _LastStep(reader)
        anew: Sequence[int] = step.unripe
        changed = step.own is not own or len(step.wanted) != rows
        if changed:
            anew = self._changed(step, own, rows)
        anew, lengths, newest = self._look(step, anew)
        last = list(map(add, step.before, lengths))
        waiting: set[int] = set()
        step.room -= 1
        if changed or anew or step.room < 0:
            entering = [(row, entry) for row in anew if (entry := step.wanted[row]) is not None]
            for row, entry in entering:
                lengths[row] = len(entry.output_ids)
                last[row] = len(entry.prompt_ids or ()) + lengths[row] - 1
                newest[row] = (entry.output_ids or entry.prompt_ids or (0,))[-1]
            self._describe(step, last, lengths)
            waiting = self._stage(entering) if entering else waiting
            step.unripe = [row for row, entry in entering if row in waiting or not entry.output_ids]
            for row, entry in entering:
                if row in waiting:
                    lengths[row], last[row], newest[row] = len(_NO_OUTPUT), -1, 0
                    continue
                step.entries[row], step.slots[row], step.grow[row] = entry, entry.slot, 1
                step.before[row], step.outputs[row] = last[row] - lengths[row], entry.output_ids or _NO_OUTPUT
        self._left.clear()
        step.due, step.last, step.newest = list(map(add, lengths, step.grow)), last, newest
        step.outbox.send((*step.slots, *last, *newest))
        return step.places, step.texts, waiting

    def _look(self, step: _LastStep, anew: Sequence[int]) -> tuple[Sequence[int], list[int], list[int]]:
        """Vacate the rows ``anew``, and those that did anything but gain a token.

        Returns:
            These rows, and for all rows the length of the output and its newest token.
        """
        if anew:
            self._vacate(step, anew)
        outputs = step.outputs
        lengths = list(map(len, outputs))
        if lengths != step.due:
            others = [row for row, (length, due) in enumerate(zip(lengths, step.due, strict=True)) if length != due]
            anew = [*anew, *self._vacate(step, others)]
            lengths = list(map(len, outputs))
        newest = list(map(_NEWEST, outputs))
        if self._keep and (PLACEHOLDER in newest or list(map(_SECOND, outputs)) != step.newest):
            pairs = enumerate(zip(outputs, step.newest, strict=True))
            others = [row for row, (output, known) in pairs if output[-1] == PLACEHOLDER or output[-2] != known]
            anew = [*anew, *self._vacate(step, others)]
            lengths, newest = list(map(len, outputs)), list(map(_NEWEST, outputs))
        return anew, lengths, newest

    def _changed(self, step: _LastStep, own: Own, rows: int) -> list[int]:
        """Give the batch other requests; return the rows to look at."""
        self._vacate(step, range(rows, len(step.entries)))
        wanted: list[AdmittedRequest | None] = [None] * rows
        for row, entry in own:
            wanted[row] = entry
        for values, value in zip(step.by_row, self._nobody(), strict=True):
            values[rows:] = [value] * (rows - len(values))
        step.own, step.wanted = own, wanted
        others = [row for row, (old, new) in enumerate(zip(step.entries, wanted, strict=True)) if old is not new]
        return sorted({*others, *(row for row in step.unripe if row < rows)})

    def _nobody(self) -> tuple[Any, ...]:
        """A row's elements of :attr:`_LastStep.by_row` without a history: its last token is at -1."""
        return None, len(self._staged), -1 - len(_NO_OUTPUT), _NO_OUTPUT, 0, len(_NO_OUTPUT), -1, _NO_OUTPUT[-1]

    def _vacate(self, step: _LastStep, rows: Sequence[int]) -> Sequence[int]:
        """Take rows out of the batch, and note what the reader stored of them; return the rows."""
        for row in rows:
            if (entry := step.entries[row]) is None:
                continue
            if self._keep and entry.slot not in self._left:
                self._staged[entry.slot], self._last[entry.slot] = step.last[row] + 1, step.newest[row]
            for values, value in zip(step.by_row, self._nobody(), strict=True):
                values[row] = value
        return rows

    def _describe(self, step: _LastStep, last: list[int], lengths: list[int]) -> None:
        """Make what the batch returns, for its number of rows and the longest of its texts."""
        rows = len(last)
        if self._keep:
            self._width = padded(max(last) + 1, SHORTEST)
            slots, have = self._buffer.shape
            if self._width > have:
                with torch.inference_mode(False):  # the engine may call inside and outside of this mode
                    grown = torch.zeros(slots, self._width, dtype=torch.int64, device=self._device)
                grown[:, :have] = self._buffer
                self._buffer = grown
        if rows not in self._outboxes:
            self._outboxes[rows] = Outbox(3 * rows, self._device)
        step.outbox = self._outboxes[rows]
        step.places, lasts, tokens = step.outbox.device.view(3, rows).unbind()
        longest = min(self._width, padded(max(lengths), SHORTEST))
        drafts, kind = (tokens, 2) if self._keep else (lasts, 0)
        prompts = self._prompts.device.view(-1)
        step.texts = SlotHistories(self._buffer, prompts, lasts, drafts, lasts, self._width, longest, kind)
        step.room = min(self._width - 1 - max(last), longest - max(lengths)) if self._keep else sys.maxsize

    def _stage(self, own: Own) -> set[int]:
        """Send what the buffer lacks, in one copy; return the rows whose history is not complete."""
        where: list[int] = []
        positions: list[int] = []
        values: list[int] = []
        waiting: set[int] = set()
        for row, entry in own:
            slot, prompt_len = entry.slot, len(entry.prompt_ids or ())
            if not self._staged[slot]:
                self._prompts.write(slot, [prompt_len])
            if not self._keep:
                self._staged[slot] = 1
                continue
            new, first = self._unstaged(entry, prompt_len)
            if self._staged[slot] != prompt_len + len(entry.output_ids):
                waiting.add(row)
            where += [slot] * len(new)
            positions += range(first, first + len(new))
            values += new
        self._prompts.flush()
        if values:
            packed = torch.from_numpy(np.array([where, positions, values], dtype=np.int64))
            slots, columns, tokens = sent(packed, self._device).unbind()
            self._buffer[slots, columns] = tokens
        return waiting

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
        for token in output[max(staged - prompt_len, 0) :]:
            if token == PLACEHOLDER:
                break
            new.append(token)
        self._staged[slot] = staged + len(new)
        if new:
            self._last[slot] = new[-1]
        return new, staged
