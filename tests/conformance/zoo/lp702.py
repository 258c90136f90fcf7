"""Defects that LP702 must catch."""

from __future__ import annotations

from typing import Any

import torch

from zoo.bases import Boost
from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP702", "copies the logits before it looks whether anybody asked", line="clone()")
class CopiesAlways(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits.clone())


@defect("LP702", "returns True for every request and adds zeros")
class AlwaysWanted(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        super().add_request(req_idx, params)
        return True
