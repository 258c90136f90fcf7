"""A request-level processor that is right; its neighbours, ``LPnnn.sdk.diff``, make it wrong."""

from __future__ import annotations

import lpkit
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor


class Echo(lpkit.AdapterLogitsProcessor):
    """Raise the logit of the last output token, by `echo` for each output token."""

    history = "tokens"

    class Params(lpkit.Params):
        echo: float = lpkit.Field(gt=0.0, le=10.0)

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        args = self.params(params)
        if args is None:
            return None

        def raise_last(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1]] += args.echo * len(output_ids)
            return logits

        return raise_last
