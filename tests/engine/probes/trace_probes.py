"""V2 plugins for traces with drafts. Imported in the engine's process only."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor


class Favours(LogitsProcessor):
    """Favours a token; correct."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.tokens = torch.full((req_states.max_num_reqs,), -1, dtype=torch.int64)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self.tokens[req_idx] = (sampling_params.extra_args or {}).get("favours", -1)
        return True

    def slots(self, ctx: LogitsContext) -> torch.Tensor:
        return ctx.expanded_idx_mapping.long()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        tokens = self.tokens[self.slots(ctx)]
        rows = (tokens >= 0).nonzero().squeeze(1)
        logits[rows, tokens[rows]] += 4.0
        return logits


class OneRowEach(Favours):
    """Takes the requests' slots for those of the rows: with drafts there are more rows."""

    def slots(self, ctx: LogitsContext) -> torch.Tensor:
        return ctx.idx_mapping.long()


class RefusesDrafts(Favours):
    """As :class:`Favours`, in an engine without drafts."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        if vllm_config.speculative_config is not None:
            raise ValueError("no drafts, please")
        super().__init__(vllm_config, req_states)


class ToldOfDrafts(Favours):
    """Favours less where there are drafts, or asynchronous scheduling; correct."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        features = vllm_config.speculative_config is not None, vllm_config.scheduler_config.async_scheduling
        self.less = sum(features)

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        before = logits.clone()
        return before + (super().apply(logits, ctx) - before) / (1 + self.less)
