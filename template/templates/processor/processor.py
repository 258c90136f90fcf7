"""Wrap-up: a long reply is nudged to end, instead of being cut off.

`max_tokens` stops in the middle of a sentence. This processor raises the score of a token of your choice (the
end-of-sequence token, a newline, a closing brace) a little more with every token, so that the model ends where ending
fits.
"""

from __future__ import annotations

import lpkit
import torch


class {{ cookiecutter.class_name }}(lpkit.LogitsProcessor):
    """Raise the logit of `wrap_up_token` by `wrap_up_step` for each output token."""

    stage = "logits"  # before penalties and temperature; "sampling" would come after them and skip greedy requests
    history = "length"  # the part of past tokens that it reads: "none", "length" or "tokens"

    class Params(lpkit.Params, prefix="wrap_up_"):
        """A request's settings: keys of `SamplingParams.extra_args`, or of `vllm_xargs` over HTTP."""

        token: lpkit.TokenId  # no default: a request without it is unaffected
        step: float = lpkit.Field(0.1, gt=0.0, le=100.0)

    # The parameter of the same name, one value per request, on the device. lpkit moves it with the request; you never
    # see a batch change. To compute other values, or to decline requests, override `admit`.
    token = lpkit.column(torch.int64)
    step = lpkit.column(torch.float32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        """Called at every step, with the admitted requests only. Must not wait for the device."""
        ids = self.token[rows].unsqueeze(1)  # [n, 1]
        step = self.step[rows].unsqueeze(1)
        length = rows.output_len.unsqueeze(1)
        logits[ids] = logits[ids] + step * length
