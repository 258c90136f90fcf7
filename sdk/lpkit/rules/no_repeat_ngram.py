"""No n-gram twice: a token is masked if it would repeat a sequence that the reply already contains.

The rule that transformers knows as ``no_repeat_ngram_size``, on the reply alone: quoting the prompt is allowed.
"""

from __future__ import annotations

import torch

import lpkit
from lpkit import kernels, sequences
from lpkit.rules import EVERYTHING


class NoRepeatNgram(lpkit.LogitsProcessor):
    """Mask tokens that would complete an n-gram of `size` tokens a second time."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        size: int = lpkit.Field(ge=1, le=1024)  # no default: a request without it is unaffected
        window: int = lpkit.Field(0, ge=0)  # how far back to look, in output tokens; 0: all of them

    size = lpkit.column(torch.int64)
    window = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.size[request.slot] = request.params.size
        self.window[request.slot] = request.params.window or EVERYTHING
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        since = rows.prompt_len.maximum(rows.total_len - self.window[rows])
        repeats = sequences.completes_ngram(rows.tokens, rows.total_len, self.size[rows], since)
        return kernels.mask_ids_(logits, rows.tokens.where(repeats, -1))
