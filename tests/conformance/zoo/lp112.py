"""Defects that LP112 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.arguments import tokens
from zoo.correct.v1 import ByHand
from zoo.correct.v2 import V2Base
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


class OneTable(V2Base):
    """The ids of all slots in one table, with so many for each."""

    CASE = {"extra_args": {"flat": [5, 9]}}
    WIDTH = 12

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.flat = torch.full(((req_states.max_num_reqs + 2) * self.WIDTH,), -1)

    @classmethod
    def read(cls, params: Any) -> Any:
        ids = tokens(params, "flat")
        if ids is not None and len(ids) > 12:
            raise ValueError("at most 12 ids")
        return ids

    def add_request(self, req_idx: int, params: Any) -> bool:
        ids, start = self.read(params) or [], req_idx * self.WIDTH
        self.flat[start : start + self.WIDTH] = -1
        self.flat[start : start + len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return bool(ids)

    def apply_staged_writes(self) -> None:
        pass

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            ids = self.flat[slot * self.WIDTH : (slot + 1) * self.WIDTH]
            logits[row, ids[ids >= 0]] += 1.5
        return logits


@defect("LP112", "a list of 9 to 12 ids runs into the next slot's part of the table")
class OneTableOfEight(OneTable):
    WIDTH = 8


sound("one table for the ids of all slots")(OneTable)
