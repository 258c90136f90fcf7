"""DeepSeek-OCR's n-gram rule: no n-gram comes twice within a sliding window of the reply, whitelisted tokens excepted.

The rule and the parameters of `NGramPerReqLogitsProcessor` in vLLM's `deepseek_ocr.py`, which runs on V1 only.
"""

from __future__ import annotations

import lpkit
import torch
from lpkit import kernels, sequences


class OcrNgram(lpkit.LogitsProcessor):
    """Mask tokens that would complete an n-gram of the last `window_size` output tokens, unless whitelisted."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        ngram_size: int = lpkit.Field(ge=1)  # no default: a request without it is unaffected
        window_size: int = lpkit.Field(100, ge=1)
        whitelist_token_ids: tuple[lpkit.TokenId, ...] = ()

    ngram_size = lpkit.column(torch.int64)
    window_size = lpkit.column(torch.int64)
    whitelist_token_ids = lpkit.token_set()

    def admit(self, request: lpkit.Request[Params]) -> bool:
        # The original never finds the empty beginning of an n-gram of one token.
        return request.params.ngram_size > 1 and super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        since = rows.prompt_len.maximum(rows.total_len - self.window_size[rows])
        repeats = sequences.completes_ngram(rows.tokens, rows.total_len, self.ngram_size[rows], since)
        banned = repeats > self.whitelist_token_ids.contains(rows, rows.tokens)  # one and not the other
        return kernels.mask_ids_(logits, rows.tokens.where(banned, -1))
