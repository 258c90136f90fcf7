"""A correct plugin that needs the engine's reasoning configuration, for ``lpkit check --engine vllm``."""

from __future__ import annotations

from typing import Any

import lpkit
import torch


class FavoursTheEnd(lpkit.LogitsProcessor):
    """Favours the marker that ends a thought, at one step of a request's life."""

    history = "length"

    class Params(lpkit.Params, prefix="end_"):
        after: int = lpkit.Field(ge=0)

    after = lpkit.column(torch.int64)

    def __init__(self, vllm_config: Any, *args: Any) -> None:
        config = vllm_config.reasoning_config
        if config is None or not config.enabled or config.natural_reasoning_end_token_ids != [8]:
            raise ValueError("this engine has no reasoning configuration")
        self.end = config.reasoning_end_token_ids[0]
        super().__init__(vllm_config, *args)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, self.end] += 5.0 * (rows.output_len >= self.after[rows])
        return logits
