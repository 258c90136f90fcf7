"""Forces one token: every other one is masked. The "hello world" of logits processors.

Useful for tests of an engine (the output is known beforehand), and as the smallest complete example.
"""

from __future__ import annotations

import lpkit
import torch
from lpkit import kernels


class TargetToken(lpkit.LogitsProcessor):
    """Leave a request nothing but its `target_token`."""

    stage = "logits"  # greedy requests too
    history = "none"

    # The prefix is the whole key: `target_tokens` is refused as a mistake, `target_length` is some other plugin's.
    class Params(lpkit.Params, prefix="target_token"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        token: lpkit.TokenId = lpkit.Field(alias="target_token")  # 0 is a token like any other

    token = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.keep_ids_(logits, self.token[rows].unsqueeze(1))
