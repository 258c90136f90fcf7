"""Defects that LP608 must catch."""

from __future__ import annotations

from typing import Any

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
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.offsets: dict[tuple[int, ...], int] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        if found is None:
            return None
        return (found[0] + self.offset(tuple(prompt or ()))) % 100, found[1]

    def offset(self, prompt: tuple[int, ...]) -> int:
        if prompt not in self.offsets and len(self.offsets) == 64:
            return self.beyond(prompt)
        return self.offsets.setdefault(prompt, sum(prompt))

    def beyond(self, prompt: tuple[int, ...]) -> int:
        """Return the offset of a prompt for which the table has no room."""
        return sum(prompt)


@defect("LP608", "a full table answers a new prompt with the first prompt's entry", advice="saturated")
class AnswersWithAnother(KeepsFirstPrompts):
    def beyond(self, prompt: tuple[int, ...]) -> int:
        return next(iter(self.offsets.values()))
