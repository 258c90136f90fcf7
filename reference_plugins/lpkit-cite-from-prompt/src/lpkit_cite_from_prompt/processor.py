"""Cite from the prompt: its tokens become more likely, and those that follow the last token in it even more.

The rule of `CiteFromPromptLogitsProcessor` in NVIDIA's logits-processor-zoo, read off the tokens at every step. Only
the tokens of the prompt are read and written, whatever the size of the vocabulary.
"""

from __future__ import annotations

import lpkit
import torch


class CiteFromPrompt(lpkit.LogitsProcessor):
    """Add `cite_boost` to the prompt's tokens, and `cite_next_boost` to those that follow the last token there."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params, prefix="cite_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        boost: float = lpkit.Field(ge=-100.0, le=100.0)  # no default: a request without it is unaffected
        next_boost: float = lpkit.Field(0.0, ge=-100.0, le=100.0)
        also: tuple[lpkit.TokenId, ...] = lpkit.Field((), max_length=64)

    boost = lpkit.column(torch.float32)
    next_boost = lpkit.column(torch.float32)
    also = lpkit.ragged(torch.int64, limit=64)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        prompt = rows.tokens.masked_fill(rows.is_output, -1)  # [n, W]
        also, boost = self.also[rows], self.boost[rows].unsqueeze(1)
        # A token that occurs twice is written twice, with the same value, read before.
        cited, others = logits[prompt] + boost, logits[also] + boost
        logits[prompt] = cited
        logits[also] = others
        last = rows.tokens.gather(1, (rows.total_len - 1).clamp(0).unsqueeze(1))
        following = prompt[:, 1:].masked_fill(prompt[:, :-1] != last, -1)
        logits[following] = cited[:, 1:] + self.next_boost[rows].unsqueeze(1)
