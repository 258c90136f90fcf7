"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
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


AdmittedRows = Sequence[tuple[int, AdmittedRequest]]
"""Admitted requests with their rows."""

AHEAD = 16
"""Steps whose positions are made at once."""

_STEPS = np.arange(AHEAD + 1)[:, np.newaxis]
_NONE: list[int] = []  # the output of a row that is not followed
_ZERO = repeat(0)
Missing = tuple["array[int]", "array[int]", "array[int]"]
"""Slots, positions and values of tokens that the device lacks."""


class V1History:
    """Device copies of a processor's histories, one buffer row for each slot and one for nobody.

    In the usual step each output grows by one token, which only the reader stores. An output that does so is followed,
    by iterators over the engine's list; the outputs of other rows are looked at in each step.

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
        self._sent = b""  # slots, as `_slots` has them
        self._shape = (0, 0, 0)  # rows, width and longest output of `_texts`
        self._admitted: AdmittedRows = ()
        self._entries: list[AdmittedRequest | None] = []
        # By row, and perhaps for more rows.
        self._outputs: list[list[int]] = []  # followed
        self._newest: list[Iterator[int]] = []  # yield the token of the step that comes
        self._before: list[Iterator[int]] = []  # yield the token that was the newest
        self._last_tokens: Sequence[int] = ()  # newest tokens of the last step
        self._by_row = np.zeros(0, dtype=np.int64)  # slots
        self._last = np.zeros(0, dtype=np.int64)  # positions of the newest tokens when they were written down
        self._moves = np.zeros(0, dtype=np.int64)  # 1 for followed outputs
        self._looked: set[int] = set()  # rows of requests that are not followed
        self._waiting: set[int] = set()  # rows of `_looked` whose history has a placeholder
        self._length = 0  # of all followed outputs together, in the last step
        # Since positions were written down: number of steps, and what each step sends.
        self._step = self._steps = 0
        self._positions = b""
        self._tokens: tuple[Iterator[tuple[int, ...]], ...] = ()
        self._followed: list[list[int]] = []
        self._count = 0

    def leave(self, slot: int) -> None:
        """Forget a slot's history: its request left."""
        self._staged.discard(slot)

    def texts(self, admitted: AdmittedRows, rows: int) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        """Bring the histories up to date; the caller must store the rows' newest tokens before the next call.

        Args:
            admitted: admitted requests and their rows; the same object while nothing changes.
            rows: of the batch.

        Returns:
            The slot of each row, int64 ``[rows]``, the histories, and the rows whose history is not complete, because
            it has an unrepaired placeholder: they have the slot of nobody.
        """
        changed = self._admitted is not admitted or len(self._entries) != rows
        if changed:
            self._arrange(admitted, rows)
        rare = changed or self._looked or self._step == self._steps
        tokens = None if rare else self._next()
        if tokens is None:
            tokens = self._looked_up(range(rows) if not rare else self._looked)
        self._outbox.send(self._positions[8 * rows * self._step : 8 * rows * (self._step + 1)], tokens)
        return self._slots, self._texts, self._waiting

    def _next(self) -> Sequence[int] | None:
        """Return each row's newest token; None if a followed output did anything but gain one."""
        grown = sum(map(len, self._followed)) - self._length
        if grown != self._count:  # perhaps the same step again
            seen = zip(self._outputs, self._last_tokens, strict=False)
            same = not grown and all(output[-1] == token for output, token in seen if output)
            return self._last_tokens if same else None
        try:
            before, tokens = map(next, self._tokens)
        except StopIteration:
            return None
        if self._keep and (before != self._last_tokens or PLACEHOLDER in tokens):
            return None
        self._last_tokens = tokens
        self._length += grown
        self._step += 1
        return tokens

    def _looked_up(self, rows: Collection[int]) -> Sequence[int]:
        """Look at rows before :meth:`_next`, or at all rows if an output surprises; send what the device lacks."""
        missing = array("q"), array("q"), array("q")
        if rows:
            self._look(rows, missing)
        self._describe()
        tokens = self._next()
        if tokens is None:
            self._look(range(len(self._entries)), missing)
            self._describe()
            tokens = self._next()
            assert tokens is not None
        if missing[0]:
            slots, positions, values = sent(torch.from_numpy(np.array(missing)), self._device).unbind()
            self._buffer[slots, positions] = values
        return tokens

    def _write_down(self) -> None:
        """Let positions be those of the last step."""
        if self._step:
            self._last += self._step * self._moves
            self._step = 0

    def _arrange(self, admitted: AdmittedRows, rows: int) -> None:
        """Give the batch other requests, or other rows."""
        self._write_down()
        old, self._admitted = self._entries, admitted
        new: list[AdmittedRequest | None] = [None] * rows
        for row, entry in admitted:
            new[row] = entry
        more = rows - len(self._outputs)
        if more > 0:
            self._outputs += [_NONE] * more
            self._newest += [_ZERO] * more
            self._before += [_ZERO] * more
            self._by_row, self._last, self._moves = (
                np.append(held, np.full(more, value))
                for held, value in ((self._by_row, self._nobody), (self._last, -1), (self._moves, 0))
            )
        last_known = [*self._last_tokens, *repeat(0, rows)]
        columns: tuple[Any, ...] = (
            self._outputs, self._newest, self._before, last_known, self._by_row, self._last, self._moves
        )  # fmt: skip
        others = [row for row, pair in enumerate(zip_longest(old, new)) if pair[0] is not pair[1]]
        nobodys = None, [_NONE, _ZERO, _ZERO, 0, self._nobody, -1, 0]
        states: dict[int, tuple[AdmittedRequest, list[Any]]] = {}
        for row in others:
            was = old[row] if row < len(old) else None
            if was is not None:
                states[id(was)] = was, [column[row] for column in columns]
        for row in others:
            _, values = states.pop(id(new[row]) if row < rows else 0, nobodys)
            for column, value in zip(columns, values, strict=True):
                column[row] = value
        for left, (*_, last, moves) in states.values():
            if moves:
                self._length -= int(last) + 1 - len(left.prompt_ids or ())
        self._entries, self._last_tokens = new, tuple(last_known[:rows])
        self._looked = {row for row in self._looked.union(others) if row < rows and new[row] and not self._moves[row]}
        self._waiting = set()

    def _look(self, rows: Collection[int], missing: Missing) -> None:
        """Look at the outputs of rows, before the batch's newest tokens are read."""
        self._write_down()
        last, moves, last_known = self._last, self._moves, [*self._last_tokens]
        self._looked, self._waiting = set(), set()
        grew = sum(map(len, self._followed)) != self._length
        for row in rows:
            entry = self._entries[row]
            if entry is None:
                continue
            slot, prompt, output = entry.slot, entry.prompt_ids or [], entry.output_ids
            if moves[row]:
                self._length -= int(last[row]) + 1 - len(prompt)
            position = len(prompt) + len(output) - 1
            newest = [*prompt[-2:], *output[-2:]][-2:]
            since = position - int(last[row]) if last[row] >= 0 else -1
            same = not self._keep or (
                newest[-1 - since : len(newest) - since] == [last_known[row]] and PLACEHOLDER not in newest
            )
            waits = False
            if since not in (0, 1) or not same:
                waits, since = self._keep and PLACEHOLDER in output, -1
                if not waits:
                    self._stage(entry, missing)
            if waits:
                self._waiting.add(row)
                position = -1
            # An output that does not grow with the others is not followed.
            follows = bool(output) and not waits and (since != 0 or (moves[row] and not grew))
            self._by_row[row] = self._nobody if waits else slot
            moves[row] = follows
            last[row] = position - follows
            last_known[row] = newest[-1 - follows] if follows < len(newest) and not waits else 0
            if follows:
                self._length += len(output) - 1
                self._outputs[row] = output
                self._newest[row] = _from(output, 1)
                self._before[row] = _from(output, 2) if len(output) > 1 else chain((last_known[row],), output)
            else:
                self._looked.add(row)
                self._outputs[row] = _NONE
                self._before[row] = self._newest[row] = repeat(last_known[row])
        self._last_tokens = tuple(last_known)

    def _stage(self, entry: AdmittedRequest, missing: Missing) -> None:
        """Add what the device may lack of a request's tokens."""
        first, new = len(entry.prompt_ids or ()), entry.output_ids
        if entry.slot not in self._staged:
            self._staged.add(entry.slot)
            self._prompts.write(entry.slot, [first])
            first, new = 0, [*(entry.prompt_ids or ()), *new]
        if self._keep:
            missing[0].extend(repeat(entry.slot, len(new)))
            missing[1].extend(range(first, first + len(new)))
            missing[2].extend(new)

    def _describe(self) -> None:
        """Make what the next steps return and send, for the number of rows and the longest of their texts."""
        self._write_down()
        rows = len(self._entries)
        slots, moves = self._by_row[:rows], self._moves[:rows]
        last = self._last[:rows] + moves  # in the step that comes
        self._followed = self._outputs[:rows]
        self._count = int(moves.sum())
        self._tokens = zip(*self._before[:rows], strict=False), zip(*self._newest[:rows], strict=False)
        longest = int(last.max()) + 1
        most = int((last - self._prompts.host[slots, 0]).max()) + 1
        width = padded(longest, SHORTEST) if self._keep else 0
        shape = rows, width, min(width, padded(most, SHORTEST))
        self._steps = min(AHEAD, 1 + min(width - longest, shape[2] - most)) if self._keep else AHEAD
        self._positions = (self._last[:rows] + _STEPS[: self._steps + 1] * moves).tobytes()
        if (by_row := slots.tobytes()) != self._sent:
            self._sent = by_row
            self._slots = sent(torch.from_numpy(slots.copy()), self._device)
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
        lasts, tokens = self._outbox.device.unbind()
        drafts, kind = (tokens, 2) if self._keep else (lasts, 0)
        prompts = self._prompts.device.view(-1)
        self._texts = SlotHistories(self._buffer, prompts, lasts, drafts, lasts, *shape[1:], kind)


def _from(output: list[int], behind: int) -> Iterator[int]:
    """Return an iterator that starts ``behind`` elements before the end of a list, and yields later elements, too."""
    elements: Any = iter(output)
    elements.__setstate__(len(output) - behind)
    return elements  # type: ignore[no-any-return]
