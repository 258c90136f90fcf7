"""No n-gram twice: a token is masked if it would repeat a sequence that the reply already contains.

The rule that transformers knows as ``no_repeat_ngram_size``, on the reply alone: quoting the prompt is allowed.
"""

from __future__ import annotations

import lpkit
import torch
from lpkit import kernels, sequences


class NoRepeatNgram(lpkit.LogitsProcessor):
    """Mask tokens that would complete an n-gram of `no_repeat_ngram_size` tokens a second time."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params, prefix="no_repeat_ngram_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        size: int = lpkit.Field(ge=1, le=1024)  # no default: a request without it is unaffected
        window: int = lpkit.Field(0, ge=0)  # how far back to look, in output tokens; 0: all of them

    size = lpkit.column(torch.int64)
    window = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.size[request.slot] = request.params.size
        self.window[request.slot] = request.params.window
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        tokens, end = rows.tokens, rows.total_len.unsqueeze(1)  # [n, W], [n, 1]
        beginning, window = self.size[rows].unsqueeze(1) - 1, self.window[rows].unsqueeze(1)
        start = rows.prompt_len.unsqueeze(1).maximum(torch.where(window > 0, end - window, 0))
        place = torch.arange(tokens.shape[1], device=tokens.device)
        # What stood behind an earlier occurrence of the last tokens, if all of that is within reach.
        repeats = sequences.end_stood_before(tokens, rows.total_len, beginning) & (place - start >= beginning)
        return kernels.mask_ids_(logits, torch.where(repeats, tokens, -1))
