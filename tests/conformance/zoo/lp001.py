"""Defects that LP001 must catch."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v1

from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP001", "forgot update_state")
class Unfinished(v1.LogitsProcessor):
    def __init__(self, *args: Any) -> None:
        pass

    def is_argmax_invariant(self) -> bool:
        return False

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class Duck:
    """All the methods, none of the base classes."""

    CASE = {"extra_args": {"bias": 2.5, "token": 7}}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.inner = Bias(vllm_config, device, is_pin_memory)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        self.inner.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return self.inner.apply(logits)


defect("LP001", "every method, no base class", style="packaging")(Duck)


defect("LP001", "the entry point names an instance", style="packaging", name="Instance", case=Bias.CASE)(
    object.__new__(Bias)
)


def factory(*args: Any) -> Bias:
    """A function that makes processors is not a class."""
    return Bias(*args)


defect("LP001", "the entry point names a factory", style="packaging", case=Bias.CASE)(factory)
