"""Correct request-level processors, on ``lpkit.AdapterLogitsProcessor``."""

from __future__ import annotations

import functools
from typing import Any

import lpkit
import torch

from zoo.registry import sound


class AdapterBase(lpkit.AdapterLogitsProcessor):
    CASE = {"extra_args": {"ad_amount": 2.25}}

    class Params(lpkit.Params, prefix="ad_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)


@sound("(output_ids, logits), in place")
class AdapterLast(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        if own is None:
            return None

        def lower(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1]] -= own.amount
            return logits

        return lower


@sound("(prompt_ids, output_ids, logits), a new tensor")
class AdapterPrompt(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)

        def cite(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            raised = logits.clone()
            for item in {*prompt_ids, *output_ids[:2]}:
                if item < len(raised):  # prompts hold ids of images, too
                    raised[item] += own.amount
            return raised

        return cite if own else None


def _ban_until(amount: float, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    if len(output_ids) < 3:
        logits[4] -= amount
    return logits


@sound("a bound functools.partial")
class AdapterPartial(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return functools.partial(_ban_until, own.amount) if own else None


@sound("declares that it reads lengths only")
class AdapterLength(AdapterBase):
    history = "length"

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return (lambda output_ids, logits: logits * (1 + len(output_ids) / 50)) if own else None


class Replaying:
    """Remembers how far it has read, and reads again from the start when the past changed."""

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.read: list[int] = []
        self.total = 0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if output_ids[: len(self.read)] != self.read:
            self.read, self.total = [], 0
        self.total += sum(output_ids[len(self.read) :])
        self.read = list(output_ids)
        logits[self.total % logits.shape[0]] += self.amount
        return logits


@sound("a callable object that replays its cache from the tokens")
class AdapterReplays(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return Replaying(own.amount) if own else None
