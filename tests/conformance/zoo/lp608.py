"""Defects that LP608 must catch."""

from __future__ import annotations

from typing import Any

from zoo.correct.v1_odd import SharesEntries
from zoo.registry import defect


@defect("LP608", "the oldest of 64 entries is overwritten, even if a running request uses it")
class OverwritesEntries(SharesEntries):
    def reuse(self, old: list[Any], found: Any) -> None:
        old[:] = found
        self.table[found] = old
