"""The fix of a finding depends on how the rule was broken, not on the rule alone; the zoo's defects name theirs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lpkit
import pytest
import torch
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.testing import compute_check
from zoo.arguments import MIN_P
from zoo.bases import Simple
from zoo.correct.portable import PortableMinP
from zoo.correct.v1 import Bias
from zoo.lp403 import ForgetsTemperature


class PlainObject:
    """Not a processor at all."""


class NoArguments(Bias):
    def __init__(self) -> None:
        pass


class ReadsAFile(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        Path("/nowhere/at/all").read_text()


class NeedsATokenizer(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.end = None
        self.name = self.end.upper()  # type: ignore[attr-defined]


class RefusesItsCase(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if "bias" in (params.extra_args or {}):
            raise ValueError("never")


class WritesPadding(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        if logits.stride(0) > logits.shape[1]:
            logits.as_strided((len(logits), logits.stride(0)), logits.stride())[:, -1] = 0.0
        return result


class DividesBySpread(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row] = logits[row] / logits[row][logits[row] > -math.inf].std()
        return logits


class SquareRoot(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row] = logits[row].sqrt()
        return logits


class Overflows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            top = logits[row].nan_to_num(neginf=0.0).abs().max()
            logits[row] += 0.1 * ((top * 1e10) - (top * 1e10))
        return logits


class ReachesOthers(Bias):
    """A bias so large that it goes to everyone."""

    @classmethod
    def validate_params(cls, params: Any) -> None:
        pass

    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        return (7, float(bias)) if isinstance(bias, float) and math.isfinite(bias) else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits = super().apply(logits)
        if any(abs(bias) > 1e5 for _, bias in self.rows.values()):
            logits[:, 9] += 4.0
        return logits


class TwoFaces(PortableMinP):
    """Late, as min-p is, and another rule on V1, where a prompt is known at admission."""

    def admit(self, request: lpkit.Request) -> bool:
        admitted = super().admit(request)
        if admitted:
            self.log_min_p[request.slot] = math.log(request.params.min_p) + len(request.prompt_token_ids or ()) / 20
        return admitted


class RaisesOnMasks(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows and logits.isneginf().any():
            raise ValueError("masks are not supported")
        return super().apply(logits)


class ThirdWithADefault(Simple):
    def make(self, amount: float, params: Any) -> Any:
        def apply(output_ids: list[int], logits: torch.Tensor, by: float = 1.0) -> torch.Tensor:
            logits[5] += amount * by
            return logits

        return apply


FIXES = [
    ("LP301", ThirdWithADefault, "functools.partial"),
    ("LP001", PlainObject, "derive it from"),
    ("LP001", PlainObject(), "point the entry point at the class"),
    ("LP101", NoArguments, "(vllm_config, device, is_pin_memory)"),
    ("LP101", ReadsAFile, "open no files"),
    ("LP101", NeedsATokenizer, "may be None"),
    ("LP106", RefusesItsCase, "correct the case"),
    ("LP304", WritesPadding, "storage"),
    ("LP305", RaisesOnMasks, fix("unexplained")),
    ("LP306", DividesBySpread, "spread"),
    ("LP306", SquareRoot, "logarithm or root of a negative number"),
    ("LP306", Overflows, "overflow"),
    ("LP112", ReachesOthers, "decide for each row alone"),
]


@pytest.mark.parametrize(("code", "target", "fix"), FIXES, ids=lambda item: getattr(item, "__name__", str(item)[:30]))
def test_a_finding_says_what_to_change_by_its_evidence(code: str, target: Any, fix: str) -> None:
    found = compute_check(code, target, case=getattr(target, "CASE", Bias.CASE))
    assert found.status == "failed", found.message
    assert found.finding is not None
    assert fix in found.finding.fix


@pytest.mark.parametrize(
    ("target", "blamed"), [(ForgetsTemperature, True), (TwoFaces, False)], ids=["temperature", "something else"]
)
def test_temperature_is_named_only_where_it_makes_the_difference(target: Any, blamed: bool) -> None:
    finding = compute_check("LP403", target, case=MIN_P).finding
    assert finding is not None
    text = f"{finding.where} {finding.got} {finding.cause} {finding.fix}"
    assert ("temperature" in text) is blamed
