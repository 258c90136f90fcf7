"""A processor written for NVIDIA Dynamo, made a vLLM plugin: "Hello world!" whatever the model thinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lpkit
import torch
from lpkit import dynamo


class HelloWorldProcessor:
    """As in Dynamo's examples: it counts its calls, writes in place, and forgets whatever was in the logits."""

    def __init__(self, token_ids: Sequence[int], eos_token_id: int) -> None:
        self.due = iter(token_ids)
        self.eos_token_id = eos_token_id

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        token = next(self.due, self.eos_token_id)
        logits.fill_(-torch.inf)
        logits[token] = 0.0


class HelloWorld(dynamo.DynamoLogitsProcessor):
    class Params(lpkit.Params, prefix="hello_"):
        token_ids: tuple[lpkit.TokenId, ...]
        end: lpkit.TokenId

    def new_processors(self, params: Any) -> list[dynamo.BaseLogitsProcessor]:
        return [HelloWorldProcessor(params.token_ids, params.end)]
