"""A repetition penalty with a short memory.

vLLM's own penalties look at everything written so far, so in a long reply even common words become expensive. This
one only looks at the last few output tokens: enough against stuttering, harmless to the rest.
"""

from __future__ import annotations

import lpkit
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor


class {{ cookiecutter.class_name }}(lpkit.AdapterLogitsProcessor):
    """Lower the logits of the last `recent_window` output tokens by `recent_penalty`."""

    stage = "logits"  # before penalties and temperature; "sampling" would come after them and skip greedy requests
    history = "tokens"  # the part of past tokens that it reads: "none", "length" or "tokens"

    class Params(lpkit.Params, prefix="recent_"):
        """A request's settings: keys of `SamplingParams.extra_args`, or of `vllm_xargs` over HTTP."""

        penalty: float = lpkit.Field(gt=0.0, le=100.0)  # no default: a request without it is unaffected
        window: int = lpkit.Field(16, ge=1, le=1024)

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Called once, when a request enters. None: it does not use the plugin, at no cost."""
        recent = self.params(params)
        if recent is None:
            return None
        penalty: float = recent.penalty
        window: int = recent.window

        def penalize(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            """Called at every step with the output so far and this request's logits, `[vocab]`."""
            recent_ids = list(set(output_ids[-window:]))
            if recent_ids:
                logits[recent_ids] -= penalty
            return logits

        return penalize
