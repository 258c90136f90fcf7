"""Defects that LP803 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.bases import Boost
from zoo.correct.v2 import V2Base
from zoo.registry import defect


@defect("LP803", "stages one request per slot until the next apply, which a rank without rows does not get")
class StagesUntilApply(V2Base):
    CASE = Boost.CASE

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.staged = torch.zeros(req_states.max_num_reqs, 2)
        self.count = 0

    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        self.staged[self.count] = torch.tensor([req_idx, value or 0.0])
        self.count += 1
        return bool(value)

    def apply_staged_writes(self) -> None:
        """Nothing: most steps have no new request."""

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for slot, value in self.staged[: self.count].tolist():
            self.on_device[int(slot)] = value
        self.count = 0
        logits[:, 5] += self.per_row(ctx)
        return logits
