"""No n-gram twice: a token is masked if it would repeat a sequence that the reply already contains.

The rule that transformers knows as ``no_repeat_ngram_size``, on the reply alone: quoting the prompt is allowed.
"""

from __future__ import annotations

import math

import lpkit
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor


class NoRepeatNgram(lpkit.AdapterLogitsProcessor):
    """Mask tokens that would complete an n-gram of `no_repeat_ngram_size` tokens a second time."""

    stage = "logits"  # before penalties and temperature; greedy requests too
    history = "tokens"

    class Params(lpkit.Params, prefix="no_repeat_ngram_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        size: int = lpkit.Field(ge=1, le=1024)  # no default: a request that does not give it is left alone
        window: int = lpkit.Field(0, ge=0)  # how far back to look, in output tokens; 0: all of them

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Called once, when a request enters. None: it is not concerned, and costs nothing."""
        wanted = self.params(params)
        if wanted is None:
            return None
        size: int = wanted.size
        window: int = wanted.window

        def ban(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            """Called at every step with the output so far and this request's logits, `[vocab]`."""
            ids = repeating(output_ids[-window:], size)
            if not ids:
                return logits
            masked = logits.index_fill(0, torch.tensor(ids, device=logits.device), -math.inf)
            # If nothing else is left, a repetition is better than no token at all.
            return torch.where((masked > -math.inf).any(), masked, logits)

        return ban


def repeating(ids: list[int], size: int) -> list[int]:
    """The tokens that stood behind each earlier occurrence of the last `size - 1` tokens of `ids`."""
    start = len(ids) - (size - 1)
    if start < 1:
        return []
    tail = ids[start:]
    return sorted({ids[i + size - 1] for i in range(start) if ids[i : i + size - 1] == tail})
