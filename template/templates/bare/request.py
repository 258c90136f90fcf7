"""Describe the processor's purpose, and its effect on a request's logits."""

from __future__ import annotations

import lpkit
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor


class {{ cookiecutter.class_name }}(lpkit.AdapterLogitsProcessor):
    """The rule in one line."""

    stage = "logits"  # before penalties and temperature; "sampling" would come after them and skip greedy requests
    history = "tokens"  # the part of past tokens that it reads: "none", "length" or "tokens"

    class Params(lpkit.Params, prefix="{{ cookiecutter.package_name }}_"):
        """A request's settings: keys of `SamplingParams.extra_args`, or of `vllm_xargs` over HTTP."""

        strength: float = lpkit.Field(gt=0.0, le=100.0)  # no default: a request without it is unaffected

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Called once, when a request enters. None: it does not use the plugin, at no cost."""
        settings = self.params(params)
        if settings is None:
            return None

        def process(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            """Called at every step with the output so far and this request's logits, `[vocab]`."""
            # The rule goes here. This would raise token 7:
            # logits[7] += settings.strength
            return logits

        return process
