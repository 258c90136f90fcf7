"""Defects that LP103 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import pydantic
import torch
from lpkit.sampling_params import SamplingParams

from zoo.correct.portable_odd import Chance
from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP103", "calls a number's method before the type is known", case={"extra_args": {"bias": 2.5, "token": 7}})
class AsksTheNumber(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        args = params.extra_args or {}
        if "bias" in args and args["bias"].is_integer() and abs(args["bias"]) > 100:
            raise ValueError("bias is too large")
        cls.read(params)


@defect("LP103", "looks a word up without asking whether there is such a preset")
class PresetByWord(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        bias = (params.extra_args or {}).get("bias")
        if isinstance(bias, str):
            params.extra_args["bias"] = {"weak": 1.0, "strong": 5.0}[bias]
        cls.read(params)


@defect(
    "LP103",
    "a validator that calls a method of None",
    case={"extra_args": {"v_low": 1.0, "v_high": 3.0}},
    also=("LP113",),
)
class CrossChecks(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="v_"):
        low: float | None = None
        high: float | None = None

        @pydantic.model_validator(mode="after")
        def ordered(self) -> Any:
            if self.low.is_integer() and not self.high:  # type: ignore[union-attr]
                raise ValueError("v_high is needed, too")
            return self

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if any(key in (params.extra_args or {}) for key in ("v_low", "v_high")):
            super().validate_params(params)

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.high - request.params.low
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows]
        return logits


@defect("LP103", "calls a number's method before the type is known, and no case names the argument", case={})
class ChanceAsked(Chance):
    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        if (params.extra_args or {}).get("chance_probability", 0.0).hex().startswith("-"):
            raise ValueError("chance_probability is a share")
        super().validate_params(params)


@defect(
    "LP103",
    "compares with what an instance sets, which the front end's process does not make",
    line="cls.most",
    cause="whose process makes no instance",
    fix="let `validate_params` read only the request",
)
class ComparesWithTheEngine(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        type(self).most = vllm_config.model_config.get_vocab_size()

    @classmethod
    def validate_params(cls, params: Any) -> None:
        asked = cls.read(params)
        if asked is not None and asked[1] > cls.most:
            raise ValueError("bias is too large")
