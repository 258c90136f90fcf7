"""Defects that LP608 must catch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import lpkit
import torch

from zoo.correct.v1 import Bias
from zoo.correct.v1_odd import SharesEntries
from zoo.registry import defect, sound


@defect("LP608", "the oldest of 64 entries is overwritten, even if a running request uses it", advice="dropped")
class OverwritesEntries(SharesEntries):
    def reuse(self, old: list[Any], found: Any) -> None:
        old[:] = found
        self.table[found] = old


@sound("a table of the first 64 prompts; what it lacks is computed")
class KeepsFirstPrompts(Bias):
    MOST = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.offsets: dict[tuple[int, ...], int] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        if found is None:
            return None
        return (found[0] + self.offset(tuple(prompt or ()))) % 100, found[1]

    def offset(self, prompt: tuple[int, ...]) -> int:
        if prompt not in self.offsets and len(self.offsets) == self.MOST:
            return self.beyond(prompt)
        return self.offsets.setdefault(prompt, sum(prompt))

    def beyond(self, prompt: tuple[int, ...]) -> int:
        """Return the offset of a prompt for which the table has no room."""
        return sum(prompt)


@defect("LP608", "a full table answers a new prompt with the first prompt's entry", advice="saturated")
class AnswersWithAnother(KeepsFirstPrompts):
    def beyond(self, prompt: tuple[int, ...]) -> int:
        return next(iter(self.offsets.values()))


@sound("a table of the last 512 arguments; each request holds its own")
class SharesManyEntries(SharesEntries):
    MOST = 512


@defect("LP608", "the oldest of 512 entries is overwritten, even if a running request uses it", line="self.MOST")
class OverwritesManyEntries(OverwritesEntries):
    MOST = 512


@sound("a table of the first 1,000 prompts; what it lacks is computed")
class KeepsThousandPrompts(KeepsFirstPrompts):
    MOST = 1000


@defect("LP608", "a full table of 1,000 prompts answers a new prompt with the first prompt's entry", advice="saturated")
class AnswersBeyondThousand(AnswersWithAnother):
    MOST = 1000


@sound("the last 512 arguments stand in a ring, with an index")
class KeepsARing(Bias):
    SIZE = 512

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ring: list[Any] = [None] * self.SIZE
        self.index: dict[Any, int] = {}
        self.count = 0

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        if found is None:
            return None
        if found not in self.index:
            self.place(found, self.count % self.SIZE)
            self.count += 1
        return self.ring[self.index[found]]

    def place(self, found: Any, at: int) -> None:
        self.index.pop(self.ring[at], None)
        self.ring[at], self.index[found] = found, at


@defect("LP608", "arguments that have left a ring stay in its index: a request that brings them again gets others'")
class KeepsItsIndex(KeepsARing):
    def place(self, found: Any, at: int) -> None:
        if len(self.index) == 4 * self.SIZE:
            self.index.clear()
        self.ring[at], self.index[found] = found, at


@defect("LP608", "`functools.lru_cache` hands out the rows of a table of 600 tokens, also those in use")
class PortableRowsByCache(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"cached_token": 17}}

    class Params(lpkit.Params, prefix="cached_"):
        token: lpkit.TokenId

    row = lpkit.column(torch.int64)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tokens = torch.zeros(600, dtype=torch.int64, device=self.device)
        self.count = 0
        self.row_of = lru_cache(maxsize=600)(self.taken)

    def taken(self, token: int) -> int:
        self.count += 1
        self.tokens[self.count % len(self.tokens)] = token
        return self.count % len(self.tokens)

    def admit(self, request: lpkit.Request) -> bool:
        self.row[request.slot] = self.row_of(request.params.token)
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.tokens[self.row[rows]].unsqueeze(1)
        logits[ids] = logits[ids] + 3.0
