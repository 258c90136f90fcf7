"""Describe the processor's purpose, and its effect on a request's logits."""

from __future__ import annotations

import lpkit
import torch


class {{ cookiecutter.class_name }}(lpkit.LogitsProcessor):
    """The rule in one line."""

    stage = "logits"  # before penalties and temperature; "sampling" would come after them and skip greedy requests
    history = "none"  # the part of past tokens that it reads: "none", "length" or "tokens"

    class Params(lpkit.Params, prefix="{{ cookiecutter.package_name }}_"):
        """A request's settings: keys of `SamplingParams.extra_args`, or of `vllm_xargs` over HTTP."""

        strength: float = lpkit.Field(gt=0.0, le=100.0)  # no default: a request without it is unaffected

    # The parameter of the same name, one value per request, on the device. lpkit moves it with the request; you never
    # see a batch change. To compute other values, or to decline requests, override `admit`.
    strength = lpkit.column(torch.float32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        """Called at every step, with the admitted requests only. Must not wait for the device."""
        # The rule goes here. This would raise token 7:
        # ids = torch.full((rows.n, 1), 7, device=self.device)
        # logits[ids] = logits[ids] + self.strength[rows].unsqueeze(1)
