"""Defects that LP402 must catch, and a correct processor that resembles them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from zoo.bases import Late
from zoo.correct.v1 import DenseMinP
from zoo.registry import defect, sound


@defect("LP402", "claims to keep the argmax until a request is 20 tokens old")
class LateChange(Late):
    def is_argmax_invariant(self) -> bool:
        return not any(self.due(outputs) for *_, outputs in self.rows.values())


@defect("LP402", "the claim differs between instances")
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
