"""Portable processors for the engine tests."""

from __future__ import annotations

import math

import lpkit
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor


class Count(lpkit.LogitsProcessor):
    """The first token generated is `count`, the next one `count` + 1, and so on."""

    history = "length"

    class Params(lpkit.Params):
        count: lpkit.TokenId

    count = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = (self.count[rows] + rows.output_len) % logits.shape[1]
        return torch.full_like(logits, -math.inf).scatter_(1, ids.unsqueeze(1), 0.0)


class Weary(lpkit.LogitsProcessor):
    """Takes `weary` off every token of prompt and output: sparse, and needs the tokens."""

    history = "tokens"

    class Params(lpkit.Params):
        weary: float

    weary = lpkit.column(torch.float32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[rows.tokens] = logits[rows.tokens] - self.weary[rows].unsqueeze(1)


class Ascend(lpkit.LogitsProcessor):
    """Each token is the last one plus 1: a single token of history that is missing or wrong shows at once."""

    history = "tokens"

    class Params(lpkit.Params):
        ascend: bool

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        last = rows.tokens.gather(1, rows.total_len.unsqueeze(1) - 1)
        return torch.full_like(logits, -math.inf).scatter_(1, last + 1, 0.0)


class AscendByRequest(lpkit.AdapterLogitsProcessor):
    """The same as a callable per request, in place and so that a second call would show."""

    class Params(lpkit.Params):
        ascend_by_request: bool

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        if self.params(params) is None:
            return None

        def rise(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            next_id = [*prompt_ids, *output_ids][-1] + 1
            if bool(logits.isinf().any()):
                return logits.fill_(0.0)  # another request was here before: choose token 0
            kept = logits[next_id].clone()
            logits.fill_(-math.inf)
            logits[next_id] = kept
            return logits

        return rise
