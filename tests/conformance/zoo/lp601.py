"""Defects that LP601 must catch."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from lpkit import v2

from zoo.bases import Boost, Simple
from zoo.correct.portable_odd import Noisy
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect


@defect("LP601", "takes turns between instances", line="self.turn = next(")
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


@defect("LP601", "draws a salt for each instance")
class Salted(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.salt = id(self.values) // 64 % 97 + 97 * next(self.made)  # no two are equal

    made = itertools.count()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx) * (1 + self.salt / 100)
        return logits


@defect("LP601", "takes the time where a client gives no seed, though the case gives one", line="time.time_ns()")
class SeedsFromTheClock(Noisy):
    def seed_of(self, given: int | None) -> int:
        return given or time.time_ns() & 0xFFFFFFFF


@defect("LP601", "a generator of its own without a seed")
class Unseeded(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        rng = random.Random()

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += amount * rng.random()
            return logits

        return apply


@defect("LP601", "acts once a thread has loaded its table")
class LoadsInAThread(Bias):
    loaded = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        threading.Thread(target=self.load, daemon=True).start()

    def load(self) -> None:
        time.sleep(0.05)
        self.loaded = True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if self.loaded else logits
