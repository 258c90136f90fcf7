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


@dataclass(slots=True)
class _Steady:
    """The rows of a step, while each output grows by one token in each step.

    Attributes:
        own, rows, reader: as :meth:`V1History.texts` gets them.
        outbox: memory of ``places`` and of two tensors of ``texts``.
        places, texts: what it returns.
        slots, before, outputs, grow: for each row its slot, position before the output, output, and 1 if that grows.
        due: lengths of the outputs in the next step.
        last, newest: position and value of each row's last token in this step.
    """

    own: Own
    rows: int
    reader: str
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

    def texts(self, own: Own, rows: int, reader: str) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        """Bring the histories up to date; the reader must store the rows' newest tokens before the next call.

        In the usual step each output grew by one token, which only the reader stores. All else takes :meth:`_slowly`.

        Args:
            own: admitted requests and their rows; the same object while nothing changes.
            rows: of the batch.
            reader: another reader than that of the last step does not rely on what that stored.

        Returns:
            The slot of each row, int64 ``[rows]``, the histories, and the rows whose history is not complete, because
            it has an unrepaired placeholder: they have the slot of nobody.
        """
        steady = self._steady
        if steady is not None and steady.reader != reader:
            steady = self._steady = None
        if steady is None or steady.own is not own or steady.rows != rows:
            return self._slowly(own, rows, reader)
        outputs = steady.outputs
        lengths = list(map(len, outputs))
        if lengths != steady.due:
            return self._slowly(own, rows, reader)
        newest, last = list(map(_NEWEST, outputs)), list(map(add, steady.before, lengths))
        if self._keep:
            rewritten = list(map(_SECOND, outputs)) != steady.newest
            longer = max(last) >= steady.texts.width or max(lengths) > steady.texts.outputs
            if rewritten or longer or PLACEHOLDER in newest:
                return self._slowly(own, rows, reader)
        steady.due, steady.last, steady.newest = list(map(add, lengths, steady.grow)), last, newest
        steady.outbox.send((*steady.slots, *last, *newest))
        return steady.places, steady.texts, set()

    def _slowly(self, own: Own, rows: int, reader: str) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        self._settle()
        waiting = self._stage(own)
        self._prompts.flush()
        nobody = len(self._staged)
        slots, before, last, newest = [nobody] * rows, [-1] * rows, [-1] * rows, [0] * rows
        outputs, grow = [_NO_OUTPUT] * rows, [0] * rows
        for row, entry in own:
            if row not in waiting:
                before[row] = len(entry.prompt_ids or ()) - 1
                slots[row], outputs[row], grow[row] = entry.slot, entry.output_ids, 1
                last[row] = before[row] + len(entry.output_ids)
                newest[row] = (entry.output_ids or entry.prompt_ids or (0,))[-1]
        if rows not in self._outboxes:
            self._outboxes[rows] = Outbox(3 * rows, self._device)
        outbox = self._outboxes[rows]
        outbox.send((*slots, *last, *newest))
        places, lasts, tokens = outbox.device.view(3, rows).unbind()
        longest = min(self._width, padded(max(map(len, outputs)), SHORTEST))
        drafts, kind = (tokens, 2) if self._keep else (lasts, 0)
        prompts = self._prompts.device.view(-1)
        texts = SlotHistories(self._buffer, prompts, lasts, drafts, lasts, self._width, longest, kind)
        if not waiting and all(outputs):
            due = [len(output) + more for output, more in zip(outputs, grow, strict=True)]
            self._steady = _Steady(
                own, rows, reader, outbox, places, texts, slots, before, outputs, grow, due, last, newest
            )
        return places, texts, waiting

    def _settle(self) -> None:
        """Note what the reader stored in steady steps."""
        steady, self._steady = self._steady, None
        if steady is not None and self._keep:
            for row, entry in steady.own:
                self._staged[entry.slot], self._last[entry.slot] = steady.last[row] + 1, steady.newest[row]

    def _stage(self, own: Own) -> set[int]:
        """Send what the buffer lacks, in one copy; return the rows whose history is not complete."""
        where: list[int] = []
        positions: list[int] = []
        values: list[int] = []
        waiting: set[int] = set()
        longest = 0
        for row, entry in own:
            slot, prompt_len = entry.slot, len(entry.prompt_ids or ())
            if not self._staged[slot]:
                self._prompts.write(slot, [prompt_len])
            if not self._keep:
                self._staged[slot] = 1
                continue
            total = prompt_len + len(entry.output_ids)
            new, first = self._unstaged(entry, prompt_len)
            if self._staged[slot] != total:
                waiting.add(row)
            longest = max(longest, total)
            where += [slot] * len(new)
            positions += range(first, first + len(new))
            values += new
        if self._keep:
            self._reserve(longest)
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

    def _reserve(self, width: int) -> None:
        self._width = padded(width, SHORTEST)
        slots, have = self._buffer.shape
        if self._width > have:
            with torch.inference_mode(False):  # the engine may call inside and outside of this mode
                grown = torch.zeros(slots, self._width, dtype=torch.int64, device=self._device)
            grown[:, :have] = self._buffer
            self._buffer = grown
