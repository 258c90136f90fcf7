"""V1 processors that are not reproducible, grow, cost too much, or stand on the wrong device."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import numpy as np
import torch
from lpkit import v1

from zoo.arguments import INF, token
from zoo.registry import defect
from zoo.v1_correct import Bias, DenseMinP, V1Base

# -- determinism and growth ----------------------------------------------------------------------------------


@defect("LP601", "seeds with the clock")
class SeedsByClock(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.generator = random.Random(time.time_ns())

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 5] += amount * self.generator.random()
        return logits


@defect("LP604", "seeds with hash() of a string: another value in every process")
class SeedsByHash(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3 + hash(f"salt {amount}") % 12] += amount
        return logits


@defect("LP605", "looks at the hour: ranks disagree once in a while")
class LooksAtTheClock(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3 + int(time.time() / 3600) % 12] += amount
        return logits


@defect("LP601", "takes turns between instances")
class TakesTurns(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}
    instances = itertools.count()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.turn = next(self.instances)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3 + self.turn % 12] += amount
        return logits


@defect("LP109", "rows in a dict of the class: those of an earlier instance are still there")
class RowsOfTheClass(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}
    rows: dict[int, Any] = {}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device = device

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3] += amount
        return logits


@defect("LP602", "seeds the global generator, so its own results are reproducible", case={"extra_args": {"gseed": 5}})
class SeedsTorch(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "gseed")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, seed in self.rows.items():
            torch.manual_seed(seed)
            logits[row] += torch.rand(logits.shape[1])
        return logits


@defect("LP602", "shuffles with numpy's global generator at admission", case={"extra_args": {"gseed": 5}})
class SeedsNumpy(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "gseed")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        seed = self.read(params)
        if seed is None:
            return None
        np.random.seed(seed)
        return (torch.from_numpy(np.random.permutation(512)[:4].copy()),)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (ids,) in self.rows.items():
            logits[row, ids] -= 2.0
        return logits


@defect("LP603", "a log of every request that came")
class KeepsALog(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        self.log = [*getattr(self, "log", []), (tuple(prompt or ()), len(outputs))]
        return super().enter(params, prompt, outputs)


@defect("LP603", "a cache by prompt, in a tensor that grows by a row per request")
class GrowingTensor(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen = torch.zeros(0, 4)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None:
            self.seen = torch.cat([self.seen, torch.zeros(1, 4)])
        return state


# -- cost ----------------------------------------------------------------------------------------------------


@defect("LP701", "a Python loop over rows")
class Loops(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias
        return logits


@defect("LP702", "copies the logits before it looks whether anybody asked")
class CopiesAlways(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits.clone())


@defect("LP703", "asks the device whether there is anything to do")
class AsksTheDevice(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if bool((self.values > 0).any()) else logits


@defect("LP703", "makes tensors of its lists in every step, as vLLM's example does")
class MakesTensorsEachStep(Bias):
    pass


# -- devices -------------------------------------------------------------------------------------------------


@defect("LP308", "makes its values where it stands, not where the logits are")
class MakesOnCpu(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            ids, bias = zip(*self.rows.values(), strict=True)
            logits[torch.tensor(list(self.rows)), torch.tensor(ids)] += torch.tensor(bias)
        return logits


@defect("LP308", "keeps a table of the vocabulary that its constructor made on the CPU")
class TableOnCpu(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.even = torch.arange(512) % 2 == 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in self.rows.items():
            logits[row] += torch.where(self.even, bias, 0.0)
        return logits


@defect("LP309", "a maximum over a batch that may be empty")
class MaximumOfNothing(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if float(logits.max()) == -INF else super().apply(logits)


# -- packaging -----------------------------------------------------------------------------------------------


@defect("LP004", "right in every way but one: it implements V1 only")
class V1Only(Bias):
    pass


@defect("LP001", "forgot update_state")
class Unfinished(v1.LogitsProcessor):
    def __init__(self, *args: Any) -> None:
        pass

    def is_argmax_invariant(self) -> bool:
        return False

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits
