"""Defects that LP605 must catch."""

from __future__ import annotations

import random
import time as clock
from time import time
from typing import Any

import lpkit
import torch

from zoo.bases import Dense, Simple
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect


@defect("LP605", "a clock that was imported by its name", line="time() / 3600")
class ClockByName(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias * (1 + int(time() / 3600) % 2)
        return logits


@defect("LP605", "warms up: stronger an hour after its construction")
class WarmsUp(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun = clock.monotonic()

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows] * (2 if clock.monotonic() - self.begun > 3600 else 1)
        return logits


@defect(
    "LP605",
    "forces the end some milliseconds after the request came: two runs of the same steps differ, too",
    cause="reads a clock for `begun`",
    also=("LP201",),
)
class Deadline(Simple):
    def make(self, amount: float, params: Any) -> Any:
        begun = clock.monotonic()

        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if clock.monotonic() - begun > 0.002:
                logits[2] += 100.0
            return logits

        return apply


@defect("LP605", "seeds with the clock")
class SeedsByClock(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.generator = random.Random(clock.time_ns())

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 5] += amount * self.generator.random()
        return logits
