"""A V2 processor that is right; its neighbours, ``LPnnn.diff``, make it wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v2 import LogitsContext, LogitsProcessor, LogitsProcRequestState


def strength_of(params: SamplingParams) -> float | None:
    value = (params.extra_args or {}).get("echo")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10:
        raise ValueError(f"echo must be a number in (0, 10], not {value!r}")
    return float(value)


class Echo(LogitsProcessor):
    """Raise the logit of the last token, by `echo` for each output token and once more."""

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        self.req_states = req_states
        self.staged = np.zeros(req_states.max_num_reqs, dtype=np.float32)
        self.strength = torch.zeros(req_states.max_num_reqs, device=req_states.device)

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        strength_of(params)

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        strength = strength_of(params)
        self.staged[slot] = strength or 0.0
        return strength is not None

    def apply_staged_writes(self) -> None:
        self.strength.copy_(torch.from_numpy(self.staged))

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        requests = ctx.idx_mapping_np
        complete = ctx.seq_lens_upper_bound_np[: len(requests)] >= self.req_states.prefill_len.np[requests]
        if not (self.staged[requests] * complete).any():
            return logits  # nobody here uses it, or their prompts are not complete
        slots = ctx.expanded_idx_mapping.long()
        visible = ctx.pos + 1
        outputs = visible - self.req_states.prompt_len.gpu[slots]
        change = self.strength.take(slots) * (outputs + 1)
        last = ctx.input_ids.long()
        change = torch.where((outputs >= 0) & (last >= 0), change, 0.0)
        return logits.scatter_add_(1, last.clamp(min=0).unsqueeze(1), change.unsqueeze(1))
