"""Defects that LP802 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.bases import V2OnceOld
from zoo.registry import defect


@defect(
    "LP802",
    "keeps prompt_len.gpu, in which no prompt ever has a length",
    case={"extra_args": {"least": 2.0}},
)
class V2OldLengths(V2OnceOld):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.kept = req_states.prompt_len.gpu

    def lengths(self) -> torch.Tensor:
        return self.kept
