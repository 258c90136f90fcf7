"""A plugin with the mistakes that a type checker is to find: each in a line that says so."""

from __future__ import annotations

import lpkit
import torch
from lpkit.v1 import LogitsProcessor as V1LogitsProcessor


class Bias(lpkit.LogitsProcessor):
    stage = "sample"  # wrong
    history = "token"  # wrong

    class Params(lpkit.Params):
        strength: float

    strength = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.strength[request.slot] = request.params.strenght  # wrong
        self.strength[request.slot] = request.param.strength  # wrong
        return "yes"  # wrong

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits * rows.temperatures  # wrong


class Spelt(lpkit.LogitsProcessor):
    def process(self, logits: torch.Tensor) -> torch.Tensor:  # wrong
        return logits


class ForAll(lpkit.AdapterLogitsProcessor):
    history = "lengths"  # wrong


class Bridge(lpkit.Bridged):
    history = "nothing"  # wrong


def wrap(target: type[V1LogitsProcessor]) -> type[object]:
    return lpkit.bridge(target, history="len")  # wrong
