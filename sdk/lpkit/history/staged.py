"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from operator import getitem

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

_NEWEST, _SECOND = repeat(-1), repeat(-2)
_ONE = np.int64(1)


class V1History:
    """Device copies of a processor's histories, one buffer row for each slot and one for nobody.

    In the usual step each output grows by one token, which only the reader stores. Any other output is staged anew.

    Args:
        slots: how many requests can hold a slot.
        device: where histories are read.
        keep_tokens: False when only lengths are declared.
    """

    _outbox: Outbox
    _slots: torch.Tensor
    _texts: SlotHistories

    def __init__(self, slots: int, device: torch.device, keep_tokens: bool) -> None:
        self._device = device
        self._keep = keep_tokens
        self._nobody = slots
        self._buffer = torch.zeros(slots + 1, 0, dtype=torch.int64, device=device)  # the last: rows of other requests
        self._prompts = Table(slots + 1, 1, torch.int64, 0, device)
        self._staged: set[int] = set()  # slots whose prompts the device has
        self._outboxes: dict[int, Outbox] = {}  # by the number of rows
        self._own: Own = ()
        self._waiting: set[int] = set()  # rows whose history has a placeholder
        self._shape = (0, 0, 0)  # rows, width and longest output of `_texts`
        self._room = 0  # number of steps until a text or an output may be longer than `_texts` says
        # By row, and then for no row. What has no output to follow has the idle one, which grows, too.
        self._idle = [0]
        self._entries: list[AdmittedRequest | None] = [None]
        self._others = [0]  # rows without a request
        self._unripe: set[int] = set()  # rows of requests that have the idle output
        self._outputs = [self._idle]
        self._newest = [0]
        self._numbers = np.array([[-1], [1]])  # positions of the newest tokens, and lengths of the outputs
        self._by_row: list[int] = []  # slots, as `_slots` has them

    def leave(self, slot: int) -> None:
        """Forget a slot's history: its request left."""
        self._staged.discard(slot)

    def texts(self, own: Own, rows: int) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        """Bring the histories up to date; the caller must store the rows' newest tokens before the next call.

        Args:
            own: admitted requests and their rows; the same object while nothing changes.
            rows: of the batch.

        Returns:
            The slot of each row, int64 ``[rows]``, the histories, and the rows whose history is not complete, because
            it has an unrepaired placeholder: they have the slot of nobody.
        """
        changed = self._own is not own or len(self._entries) != rows + 1
        if changed:
            self._arrange(own, rows)
        outputs, known = self._outputs, self._newest
        self._idle.append(0)
        self._numbers += _ONE
        lengths, due = list(map(len, outputs)), self._numbers[1].tolist()
        anew = dict.fromkeys(self._unripe, PLACEHOLDER)  # rows to look at, and their last tokens, if these are known
        if lengths != due:
            for row in [row for row, length in enumerate(lengths) if length != due[row]]:
                anew[row], known[row], outputs[row] = known[row], 0, self._idle
        newest = list(map(getitem, outputs, _NEWEST))
        if self._keep and (PLACEHOLDER in newest or list(map(getitem, outputs, _SECOND)) != known):
            for row, output in enumerate(outputs):
                if output[-1] == PLACEHOLDER or output[-2] != known[row]:
                    anew[row] = PLACEHOLDER
        missing = self._look(anew, newest) if anew else ([], [], [])
        if changed or anew or not self._room:
            self._describe()
        else:
            self._room -= 1
        if missing[0]:
            slots, positions, tokens = sent(torch.from_numpy(np.array(missing)), self._device).unbind()
            self._buffer[slots, positions] = tokens
        self._newest = newest
        self._outbox.send(self._numbers[0], newest)
        return self._slots, self._texts, self._waiting

    def _arrange(self, own: Own, rows: int) -> None:
        """Give the batch other requests, or other rows."""
        old, self._own = self._entries, own
        new: list[AdmittedRequest | None] = [None] * (rows + 1)
        for row, entry in own:
            new[row] = entry
        others = [row for row, (was, wanted) in enumerate(zip_longest(old, new)) if was is not wanted]
        before = {id(old[row]): row for row in others if row < len(old) and row not in self._unripe}
        before[id(None)] = -1
        known = [row if row < len(old) - 1 else -1 for row in range(rows)]
        for row in others:
            if row < rows:
                known[row] = before.get(id(new[row]), -1)
        known.append(-1)
        self._outputs, self._newest = [self._outputs[row] for row in known], [self._newest[row] for row in known]
        self._numbers = self._numbers[:, known]
        entering = {row for row in others if row < rows and known[row] < 0 and new[row] is not None}
        self._unripe = entering.union(self._unripe.difference(others))
        self._entries, self._others = new, [row for row, entry in enumerate(new) if entry is None]
        self._idle[:] = [0]  # no longer than the others
        self._numbers[:, [*self._others, *self._unripe]] = [[-1], [1]]

    def _look(self, anew: Mapping[int, int], newest: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Follow outputs that did anything but gain a token; return slots, positions and values of tokens to stage."""
        slots: list[int] = []
        positions: list[int] = []
        values: list[int] = []
        last, lengths = self._numbers
        last[self._others] = -1
        self._unripe, self._waiting = set(), set()
        for row, known in anew.items():
            entry = self._entries[row]
            assert entry is not None
            slot, prompt, output = entry.slot, entry.prompt_ids or [], entry.output_ids
            again = known != PLACEHOLDER and len(output) == lengths[row] - 1  # in the same step
            if again and output[-1] == known:
                self._numbers[:, row] -= _ONE
                self._outputs[row], newest[row] = output, known
                continue
            waits = self._keep and PLACEHOLDER in output
            if waits or not output:
                self._unripe.add(row)
                self._outputs[row], newest[row], self._numbers[:, row] = self._idle, 0, (-1, len(self._idle))
            else:
                self._outputs[row], newest[row], lengths[row] = output, output[-1], len(output)
            if waits:
                self._waiting.add(row)
                continue
            last[row] = len(prompt) + len(output) - 1
            first = len(prompt)
            if slot not in self._staged:
                self._staged.add(slot)
                self._prompts.write(slot, [first])
                first = 0
            if self._keep:
                new = [*prompt, *output] if not first else output
                slots += [slot] * len(new)
                positions += range(first, first + len(new))
                values += new
                newest[row] = (output or prompt or (0,))[-1]
        return slots, positions, values

    def _describe(self) -> None:
        """Make what the batch returns, for its number of rows and the longest of its texts."""
        rows = len(self._entries)
        longest, most = self._numbers.max(1).tolist()
        most = min(most, longest + 1)  # the idle output may be longer
        width = padded(longest + 1, SHORTEST) if self._keep else 0
        shape = rows, width, min(width, padded(most, SHORTEST))
        self._room = min(width - 1 - longest, shape[2] - most) if self._keep else sys.maxsize
        slots = [self._nobody if entry is None else entry.slot for entry in self._entries[:-1]]
        for row in self._waiting:
            slots[row] = self._nobody
        if slots != self._by_row:
            self._by_row, self._slots = slots, sent(torch.from_numpy(np.array(slots)), self._device)
        self._prompts.flush()
        if shape == self._shape:
            return
        self._shape = shape
        have = self._buffer.shape[1]
        if width > have:
            with torch.inference_mode(False):  # the engine may call inside and outside of this mode
                grown = torch.zeros(self._nobody + 1, width, dtype=torch.int64, device=self._device)
            grown[:, :have] = self._buffer
            self._buffer = grown
        if rows not in self._outboxes:
            self._outboxes[rows] = Outbox(rows, self._device)
        self._outbox = self._outboxes[rows]
        lasts, tokens = self._outbox.device[:, :-1].unbind()
        drafts, kind = (tokens, 2) if self._keep else (lasts, 0)
        prompts = self._prompts.device.view(-1)
        self._texts = SlotHistories(self._buffer, prompts, lasts, drafts, lasts, *shape[1:], kind)
