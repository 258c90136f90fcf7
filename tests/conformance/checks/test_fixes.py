"""The fix of a finding depends on how the rule was broken, not on the rule alone."""

from __future__ import annotations

import logging
import math
import os
import random
from pathlib import Path
from typing import Any

import lpkit
import numpy as np
import pytest
import torch
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.testing import compute_check
from zoo.arguments import MIN_P, number
from zoo.correct.portable import PortableMinP
from zoo.correct.v1 import Bias, ByHand
from zoo.lp403 import ForgetsTemperature
from zoo.lp607 import PreallocatesATable

CASE = Bias.CASE


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


class Misspelt(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits + self.bais if self.rows else logits  # type: ignore[attr-defined]


class RefusesCompany(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        args = params.extra_args or {}
        if "bias" in args and not args.keys() <= {"bias", "token"}:
            raise ValueError("unknown keys")


class RefusesItsCase(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if "bias" in (params.extra_args or {}):
            raise ValueError("never")


class Returns(Bias):
    def apply(self, logits: torch.Tensor) -> Any:
        result = super().apply(logits)
        return self.made(result) if self.rows else result

    def made(self, result: torch.Tensor) -> Any:
        return None


class ReturnsHalf(Returns):
    def made(self, result: torch.Tensor) -> Any:
        return result.half()


class ReturnsFewerRows(Returns):
    def made(self, result: torch.Tensor) -> Any:
        return result[:1, :5]


class ReturnsTransposed(Returns):
    def made(self, result: torch.Tensor) -> Any:
        return result.t().contiguous().t()


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


class Copies(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            logits.cpu()[list(self.rows)] *= 1.5
        return logits


class Draws(Bias):
    def draw(self) -> float:
        return float(torch.rand(1))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.draw()
        return super().apply(logits)


class DrawsFromPython(Draws):
    def draw(self) -> float:
        return random.random()


class DrawsFromNumpy(Draws):
    def draw(self) -> float:
        return float(np.random.rand())


class Sets(Bias):
    """Changes something of the process."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.change()

    def change(self) -> None:
        os.environ["A_VARIABLE"] = "1"


class SetsDtype(Sets):
    def change(self) -> None:
        torch.set_default_dtype(torch.float64)


class SetsLogging(Sets):
    def change(self) -> None:
        logging.basicConfig(level=logging.INFO)


class SetsGrad(Sets):
    def change(self) -> None:
        torch.set_grad_enabled(False)


class KeepsRequests(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[Any] = []

    def place(self, row: int, state: Any) -> None:
        self.seen.append(row)
        super().place(row, state)


class KeepsArguments(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[Any, int] = {}

    def place(self, row: int, state: Any) -> None:
        self.known[state] = row
        super().place(row, state)


class OneRankOnly(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.first = vllm_config.parallel_config.rank == 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if self.first else logits


class WantsAnEndToken(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.end = int(vllm_config.model_config.hf_config.eos_token_id or "none")


class WholeWords(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits.view(len(logits), -1, 32)
        return super().apply(logits)


class SwitchesItselfOff(Bias):
    off = False

    @classmethod
    def validate_params(cls, params: Any) -> None:
        pass

    def update_state(self, batch_update: Any) -> None:
        try:
            super().update_state(batch_update)
        except Exception:
            self.off = True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.off else super().apply(logits)


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


class Infinite(Bias):
    """Takes any number."""

    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        return (7, bias) if isinstance(bias, float) else None

    @classmethod
    def validate_params(cls, params: Any) -> None:
        number(params, "token")


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


FIXES = [
    ("LP001", PlainObject, "derive it from"),
    ("LP001", PlainObject(), "point the entry point at the class"),
    ("LP101", NoArguments, "(vllm_config, device, is_pin_memory)"),
    ("LP101", ReadsAFile, "open no files"),
    ("LP101", NeedsATokenizer, "may be None"),
    ("LP109", Misspelt, "correct the name"),
    ("LP102", RefusesCompany, "ignore keys that you do not know"),
    ("LP106", RefusesItsCase, "correct the case"),
    ("LP301", Returns, "return logits"),
    ("LP301", ReturnsHalf, ".to(logits.dtype)"),
    ("LP301", ReturnsFewerRows, "all rows and all tokens"),
    ("LP301", ReturnsTransposed, ".contiguous()"),
    ("LP304", WritesPadding, "storage"),
    ("LP305", RaisesOnMasks, fix("unexplained")),
    ("LP306", DividesBySpread, "spread"),
    ("LP306", SquareRoot, "logarithm or root of a negative number"),
    ("LP306", Overflows, "overflow"),
    ("LP308", Copies, "edit `logits` itself"),
    ("LP602", Draws, "torch.Generator"),
    ("LP602", DrawsFromPython, "random.Random"),
    ("LP602", DrawsFromNumpy, "default_rng"),
    ("LP603", KeepsRequests, "forget a request"),
    ("LP603", KeepsArguments, "lru_cache"),
    ("LP607", Sets, "environment variable"),
    ("LP607", SetsDtype, "`dtype=`"),
    ("LP607", SetsLogging, "getLogger(__name__)"),
    ("LP607", SetsGrad, "torch.no_grad"),
    ("LP607", PreallocatesATable, "max_num_seqs"),
    ("LP221", OneRankOnly, "every rank"),
    ("LP221", WantsAnEndToken, "eos_token_id"),
    ("LP221", WholeWords, "32"),
    ("LP112", SwitchesItselfOff, "go on with the rest of the update"),
    ("LP112", ReachesOthers, "its own request"),
    ("LP111", Infinite, "math.isfinite"),
]


@pytest.mark.parametrize(("code", "target", "fix"), FIXES, ids=lambda item: getattr(item, "__name__", str(item)[:30]))
def test_a_finding_says_what_to_change_by_its_evidence(code: str, target: Any, fix: str) -> None:
    found = compute_check(code, target, case=CASE)
    assert found.status == "failed", found.message
    assert found.finding is not None
    assert fix in found.finding.fix


@pytest.mark.parametrize(
    ("target", "blamed"), [(ForgetsTemperature, True), (TwoFaces, False)], ids=["temperature", "something else"]
)
def test_temperature_is_named_only_where_it_makes_the_difference(target: Any, blamed: bool) -> None:
    finding = compute_check("LP403", target, case=MIN_P).finding
    assert finding is not None
    told = f"{finding.where} {finding.got} {finding.cause} {finding.fix}"
    assert ("temperature" in told) is blamed
