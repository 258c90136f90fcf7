"""Defects that LP114 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.bases import Boost, Dense
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect, sound


@defect("LP114", "reads again what only `validate_params` has checked")
class TrustsTheFrontEnd(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = (params.extra_args or {}).get("bias")
        return None if bias is None else float(bias)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.rows.items():
            logits[row, 5] += bias
        return logits


@defect("LP114", "a list, which validation refuses, is for everyone")
class ListsAreForEveryone(TrustsTheFrontEnd):
    everyone = 0.0

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        try:
            return self.read(params)
        except ValueError:
            if isinstance(params.extra_args["bias"], list):
                self.everyone = 1.0
            return None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits = super().apply(logits)
        return logits + self.everyone if self.everyone else logits


@defect("LP114", "writes the argument, whatever it is, into a tensor")
class WritesAnything(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        bias = (params.extra_args or {}).get("bias")
        self.values[req_idx] = 0.0 if bias is None else bias
        return bias is not None


@defect("LP114", "switches itself off after a request that it refuses")
class OffOnceRefused(Boost):
    off = False

    def add_request(self, req_idx: int, params: Any) -> bool:
        try:
            return super().add_request(req_idx, params)
        except ValueError:
            self.off = True
            return False

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits if self.off else super().apply(logits, ctx)


@defect(
    "LP114",
    "a request that it refuses halves the rule of all others",
    line="self.scale = 0.5",
    cause="it is one value that all requests share",
    fix="keep a value of `self.scale`",
    state="self.scale",
)
class ScaledByRefused(Boost):
    scale = 1.0

    def add_request(self, req_idx: int, params: Any) -> bool:
        bias = (params.extra_args or {}).get("bias")
        try:
            self.read(params)
        except ValueError:
            self.scale = 0.5
            bias = None
        self.values[req_idx] = bias or 0.0
        return bool(bias)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.scale * self.values[ctx.expanded_idx_mapping]
        return logits


@sound("what is refused on V1 is declined when it arrives all the same")
class DeclinesRefused(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        try:
            return self.read(params)
        except ValueError:
            return None


@sound("what is refused on V2 is declined when it arrives all the same")
class DeclinesRefusedOnV2(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        try:
            return super().add_request(req_idx, params)
        except ValueError:
            self.values[req_idx] = 0.0
            return False


@sound("reads the argument itself, once admission has parsed it again")
class ReadsAfterAdmission(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = float(request.sampling_params.extra_args["dense_amount"])
        return True
