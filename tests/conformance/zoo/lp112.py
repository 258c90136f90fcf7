"""Defects that LP112 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import torch

from zoo.correct.v1 import ByHand
from zoo.registry import defect, sound


class Careless(ByHand):
    """Validates only that there is something; reading it may raise."""

    @classmethod
    def validate_params(cls, params: Any) -> None:
        pass


@sound("an exception is caught for the one request")
class CatchesOne(Careless):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        try:
            return self.read(params)
        except ValueError:
            return None


@defect("LP112", "switches itself off after the first exception", fix="go on with the rest of the update")
class SwitchesOff(CatchesOne):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.off = False

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        try:
            return self.read(params)
        except ValueError:
            self.off = True
            return None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.off else super().apply(logits)


@defect("LP112", "a bias of 0 switches the rule off for everyone", state="self.off", line="self.off |=")
class OffByZero(ByHand):
    off = False

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        self.off |= state is not None and state[1] == 0
        return state

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.off else super().apply(logits)
