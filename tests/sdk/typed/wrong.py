"""A plugin with mistakes that `make types` must find: strict, it also complains of an ignore without an error."""

from __future__ import annotations

import lpkit
import torch
from lpkit.v1 import LogitsProcessor as V1LogitsProcessor


class Bias(lpkit.LogitsProcessor):
    stage = "sample"  # type: ignore[assignment]
    history = "token"  # type: ignore[assignment]

    class Params(lpkit.Params):
        strength: float

    strength = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.strength[request.slot] = request.params.strenght  # type: ignore[attr-defined]
        self.strength[request.slot] = request.param.strength  # type: ignore[attr-defined]
        return "yes"  # type: ignore[return-value]

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits * rows.temperatures  # type: ignore[attr-defined,no-any-return]


class Spelt(lpkit.LogitsProcessor):
    def process(self, logits: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return logits


class ForAll(lpkit.AdapterLogitsProcessor):
    history = "lengths"  # type: ignore[assignment]


class Bridge(lpkit.Bridged):
    history = "nothing"  # type: ignore[assignment]


def wrap(target: type[V1LogitsProcessor]) -> type[object]:
    return lpkit.bridge(target, history="len")  # type: ignore[arg-type]
