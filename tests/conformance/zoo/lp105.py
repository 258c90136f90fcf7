"""Defects that LP105 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lpkit
import torch

from zoo.bases import Boost, Dense, Simple
from zoo.correct.v1 import Bias
from zoo.correct.v1_odd import Listed
from zoo.registry import defect


@defect("LP105", "sorts the client's own list", line="ids.sort()", cause="`extra_args['lower']` itself")
class SortsTheClientsList(Listed):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = (params.extra_args or {}).get("lower")
        if ids:
            ids.sort()
        return self.read(params)


@defect(
    "LP105",
    "shortens the client's own list when the request resumes",
    line="del ids[",
    cause="removes something from the request's own arguments",
)
class ShortensTheClientsList(Listed):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = (params.extra_args or {}).get("lower")
        if ids:
            del ids[: len(outputs)]
        return self.read(params)


@defect("LP105", "fills its default into the extra_args of every request")
class FillsDefaults(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        if params.extra_args is not None:
            params.extra_args.setdefault("token", 7)


@defect("LP105", "marks the request in its extra_args as seen")
class MarksParams(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = super().add_request(req_idx, params)
        if wanted:
            params.extra_args["_slot"] = req_idx
        return wanted


@defect("LP105", "takes its argument out of extra_args")
class TakesArgument(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        request.sampling_params.extra_args.pop("dense_note", None)
        request.sampling_params.extra_args["dense_amount"] = -request.params.amount  # "so that it is used once"
        return True


@defect("LP105", "writes its progress into the request's extra_args")
class WritesProgress(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            params.extra_args["ad_seen"] = len(output_ids)
            logits[5] += amount
            return logits

        return apply
