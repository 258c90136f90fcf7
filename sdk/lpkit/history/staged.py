"""Token histories under V1: new tokens are staged from the engine's host lists to the device."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch

from lpkit.columns.transfer import Outbox, pinned
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


Entries = Sequence[AdmittedRequest | None]
"""The admitted request of each row."""

AHEAD = 16
"""Steps whose positions are made at once."""

_STEPS = np.arange(AHEAD + 1)[:, np.newaxis]
_NONE: list[int] = []  # the output of a row that is not followed
_ZERO = repeat(0)


class V1History:
    """Device copies of a processor's histories, one buffer row for each slot and one for nobody.

    In the usual step each output grows by one token, which only the reader stores. An output that does so is followed,
    by iterators over the engine's list; the outputs of other rows are looked at in each step.

    Args:
        slots: how many requests can hold a slot.
        device: where histories are read.
        keep_tokens: False when only lengths are declared.

    Attributes:
        changed: rows that have another request than in the last step.
    """

    _outbox: Outbox
    _texts: SlotHistories

    def __init__(self, slots: int, device: torch.device, keep_tokens: bool) -> None:
        self._device = device
        self._keep = keep_tokens
        self._nobody = slots
        self._buffer = torch.zeros(slots + 1, 0, dtype=torch.int64, device=device)  # the last: rows of other requests
        self._prompts = np.zeros(slots + 1, dtype=np.int64)  # their lengths, by slot
        self._staged: set[int] = set()  # slots whose prompts the device has
        self._outboxes: dict[int, Outbox] = {}  # by the number of rows
        self._missing: list[tuple[int, int, list[int]]] = []  # slot, position and tokens that the device lacks
        self._seldom: tuple[bytes, bytes] | None = None  # what the next step sends besides positions and tokens
        self._shape = (0, 0, 0)  # rows, width and longest output of `_texts`
        self.changed: set[int] = set()
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

    def texts(self, entries: Entries, rows: int) -> tuple[torch.Tensor, SlotHistories, set[int]]:
        """Bring the histories up to date; the caller must store the rows' newest tokens before the next call.

        Args:
            entries: by row, and perhaps for more rows; :attr:`changed` has the rows that differ from the last call.
            rows: of the batch.

        Returns:
            The slot of each row, int64 ``[rows]``, the histories, and the rows whose history is not complete, because
            it has an unrepaired placeholder: they have the slot of nobody.
        """
        changed = self.changed or len(self._entries) != rows
        if changed:
            self._arrange(entries, rows)
        rare = changed or self._looked or self._step == self._steps
        tokens = None if rare else self._next()
        if tokens is None:
            tokens = self._looked_up(range(rows) if not rare else self._looked)
        positions = self._positions[8 * rows * self._step : 8 * rows * (self._step + 1)]
        self._outbox.send(positions, tokens, self._seldom)
        self._seldom = None
        return self._outbox.by_row, self._texts, self._waiting

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
        if rows:
            self._look(rows)
        self._describe()
        tokens = self._next()
        if tokens is None:
            self._look(range(len(self._entries)))
            self._describe()
            tokens = self._next()
            assert tokens is not None
        self._store()
        return tokens

    def _store(self) -> None:
        """Send the tokens that the device lacks."""
        if not self._missing:
            return
        every = [token for *_, tokens in self._missing for token in tokens]
        values = pinned(torch.frombuffer(array("q", every), dtype=torch.int64), self._device)
        begin = 0
        for slot, first, tokens in self._missing:
            count = len(tokens)
            there = self._buffer.select(0, slot).narrow(0, first, count)
            there.copy_(values.narrow(0, begin, count), non_blocking=True)
            begin += count
        self._missing = []

    def _write_down(self) -> None:
        """Let positions be those of the last step."""
        if self._step:
            self._last += self._step * self._moves
            self._step = 0

    def _arrange(self, entries: Entries, rows: int) -> None:
        """Give the batch other requests, or other rows."""
        self._write_down()
        old, new = self._entries, [*entries[:rows]]
        fewer, most = sorted((len(old), rows))
        others = [row for row in self.changed.union(range(fewer, most)) if row < most]
        self.changed = set()
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

    def _look(self, rows: Collection[int]) -> None:
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
                    self._stage(entry)
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

    def _stage(self, entry: AdmittedRequest) -> None:
        """Note what the device may lack of a request's tokens."""
        first, tokens = len(entry.prompt_ids or ()), entry.output_ids
        if entry.slot not in self._staged:
            self._staged.add(entry.slot)
            self._prompts[entry.slot] = first
            first, tokens = 0, [*(entry.prompt_ids or ()), *tokens]
        if self._keep and tokens:
            self._missing.append((entry.slot, first, tokens))

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
        most = int((last - self._prompts[slots]).max()) + 1
        width = padded(longest, SHORTEST) if self._keep else 0
        shape = rows, width, min(width, padded(most, SHORTEST))
        self._steps = min(AHEAD, 1 + min(width - longest, shape[2] - most)) if self._keep else AHEAD
        self._positions = (self._last[:rows] + _STEPS[: self._steps + 1] * moves).tobytes()
        self._seldom = self._prompts.tobytes(), slots.tobytes()
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
            self._outboxes[rows] = Outbox(self._nobody + 1, rows, self._device)
        box = self._outbox = self._outboxes[rows]
        drafts, kind = (box.second, 2) if self._keep else (box.first, 0)
        self._texts = SlotHistories(self._buffer, box.by_slot, box.first, drafts, box.first, *shape[1:], kind)


def _from(output: list[int], behind: int) -> Iterator[int]:
    """Return an iterator that starts ``behind`` elements before the end of a list, and yields later elements, too."""
    elements: Any = iter(output)
    elements.__setstate__(len(output) - behind)
    return elements  # type: ignore[no-any-return]
