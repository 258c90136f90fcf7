"""Defects that LP207 must catch."""

from __future__ import annotations

from typing import Any

from zoo.bases import Boost
from zoo.registry import defect


@defect("LP207", "takes slot 0 for no slot: it is given out last of all", also=("LP204",))
class FalsySlot(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        if not req_idx:
            return False
        return super().add_request(req_idx, params)
