"""Defects that LP402 must catch, and a correct processor that resembles them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from zoo.bases import Late
from zoo.correct.v1 import Bias, DenseMinP
from zoo.registry import defect, sound


@defect(
    "LP402",
    "claims to keep the argmax until a request is 20 tokens old",
    cause="right after construction, and was told True. Later the method returns False",
    fix="return False: the plugin changes the argmax",
)
class LateChange(Late):
    def is_argmax_invariant(self) -> bool:
        return not any(self.due(outputs) for *_, outputs in self.rows.values())


@defect("LP402", "claims to keep the argmax while it is idle", line="return self.idle", advice="changes")
class ClaimWhileIdle(Bias):
    CASE = {"extra_args": {"bias": 90.0, "token": 7}, "temperature": 0.0}

    @property
    def idle(self) -> bool:
        return not self.rows

    def is_argmax_invariant(self) -> bool:
        return self.idle


@sound("says that it has nothing to do, and makes no claim of it", case=ClaimWhileIdle.CASE)
class IdleWithoutClaim(ClaimWhileIdle):
    def is_argmax_invariant(self) -> bool:
        return False


@defect(
    "LP402",
    "the claim differs between instances",
    cause="two instances answer True and False right after",
    fix="return a literal",
)
class ClaimPerInstance(DenseMinP):
    made = itertools.count()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.claim = next(self.made) % 2 == 0

    def is_argmax_invariant(self) -> bool:
        return self.claim


@sound("its claim is numpy's bool, which vLLM asks for its truth")
class ClaimOfNumpy(DenseMinP):
    def is_argmax_invariant(self) -> Any:
        return np.bool_(super().is_argmax_invariant())
