"""Defects that LP702 must catch."""

from __future__ import annotations

from typing import Any

from zoo.bases import Boost
from zoo.registry import defect


@defect("LP702", "returns True for every request and adds zeros")
class AlwaysWanted(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        super().add_request(req_idx, params)
        return True
