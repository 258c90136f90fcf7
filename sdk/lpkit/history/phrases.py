"""Phrases of requests: sequences of token ids, and what each row's tokens have written of them.

All answers are functions of the row's tokens, so they hold for drafts, and for requests that resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch

from lpkit import sequences
from lpkit.columns.column import Declaration, HasSlots, Memory
from lpkit.columns.ragged import ListTooLongError, RaggedColumn
from lpkit.columns.widths import padded
from lpkit.history.rows import Rows


class PhrasesColumn(RaggedColumn):
    """Sequences of token ids per request slot.

    ``column[request.slot] = [(5, 6), (7,)]`` stages them on the host; ``column[rows]`` is int64 ``[n, k, L]`` on the
    device, with -1 behind each phrase, and phrases of -1 behind the last one. ``L`` is a power of two, at least the
    longest phrase held so far.
    """

    def __init__(self, declared: phrases, slots: int, arena: Memory) -> None:
        super().__init__(declared, declared.limit * declared.longest, slots, arena)
        self._most, self._longest = declared.limit, declared.longest
        self._block = 1  # tokens of memory for each phrase

    def __setitem__(self, slot: int, value: Any) -> None:
        """Stage a request's phrases on the host.

        Args:
            slot: ``request.slot``.
            value: the phrases, each an iterable of token ids; a set of phrases is sorted. There may be none.

        Raises:
            ListTooLongError: there are more phrases, or longer ones, than the column holds. In ``admit`` it declines
                the request.
        """
        given = sorted(value) if isinstance(value, Set) else [tuple(phrase) for phrase in value]
        longest = max(map(len, given), default=1)
        if len(given) > self._most:
            raise ListTooLongError(f"{len(given)} phrases; at most {self._most} are kept per request")
        if longest > self._longest:
            raise ListTooLongError(f"a phrase has {longest} tokens; at most {self._longest} are compared")
        if longest > self._block:
            self._widen(padded(longest))
        self._write(slot, given)

    def _write(self, slot: int, given: Iterable[Sequence[int]]) -> None:
        room = (-1,) * self._block
        super().__setitem__(slot, [token for phrase in given for token in (*phrase, *room[len(phrase) :])])

    def _widen(self, block: int) -> None:
        """Give each phrase more memory."""
        held = {
            slot: self._host[slot, :count].reshape(-1, self._block).tolist()
            for slot, count in enumerate(self._lengths)
            if count
        }
        self._block = block
        for slot, given in held.items():
            self._write(slot, given)

    def __getitem__(self, rows: HasSlots) -> torch.Tensor:
        """Return the phrases of some rows, int64 ``[n, k, L]`` on the device; k is at least 1.

        Args:
            rows: the rows that ``process`` or ``edit`` got.
        """
        flat = super().__getitem__(rows)
        if flat.shape[1] < self._block:  # nobody has phrases now
            flat = torch.nn.functional.pad(flat, (0, self._block - flat.shape[1]), value=-1)
        return flat.reshape(flat.shape[0], -1, self._block)

    def completing(self, rows: Rows) -> torch.Tensor:
        """Return the tokens that would complete a phrase now: the last one of each phrase whose others stand at the
        end of the row's tokens.

        Args:
            rows: the rows that ``process`` or ``edit`` got. Needs ``history = "tokens"``.

        Returns:
            int64 ``[n, k]``, -1 for other phrases; a phrase of one token always counts.
        """
        held = self[rows]
        if self._block == 1:
            return held.squeeze(2)
        before = (held >= 0).sum(2) - 1
        last = held.gather(2, before.clamp(min=0).unsqueeze(2)).squeeze(2)
        return last.where(sequences.ends_with(rows.tokens, rows.total_len, held, before), -1)

    def continuing(self, rows: Rows, since: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens that continue a phrase which the row began at a position: the branches of a trie.

        Args:
            rows: the rows that ``process`` or ``edit`` got. Needs ``history = "tokens"``.
            since: int64 ``[n]``, where the phrase begins, e.g. ``rows.prompt_len``.

        Returns:
            int64 ``[n, k]``, the next token of each phrase, -1 for a phrase that the tokens since then do not begin;
            and bool ``[n]``, True if they are one of the phrases.
        """
        held = self[rows]
        length = (held >= 0).sum(2)
        written = (rows.total_len - since).unsqueeze(1).expand_as(length)
        follows = sequences.ends_with(rows.tokens, rows.total_len, held, written) & (written >= 0)
        index = written.clamp(0, self._block - 1).unsqueeze(2)
        token = held.gather(2, index).squeeze(2).where(follows & (written < length), -1)
        return token, (follows & (written == length) & (length > 0)).any(1)


class phrases(Declaration[PhrasesColumn]):  # noqa: N801 - used as a declaration
    """Declares a :class:`PhrasesColumn` in a processor's class body.

    Args:
        limit: most phrases that a request may have; more decline the request.
        longest: most tokens of a phrase, a power of two; a longer one declines the request.
    """

    def __init__(self, *, limit: int = 256, longest: int = 16) -> None:
        if longest < 1 or padded(longest) != longest:
            raise ValueError(f"longest must be a power of two, got {longest}")
        super().__init__(torch.int64, -1)
        self.limit, self.longest = limit, longest

    def bind(self, slots: int, arena: Memory) -> PhrasesColumn:
        return PhrasesColumn(self, slots, arena)
