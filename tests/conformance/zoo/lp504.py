"""Defects that LP504 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit.v1 import BatchUpdate

from zoo.arguments import REPETITION
from zoo.correct.v1 import ByHand
from zoo.correct.v1_history import History
from zoo.registry import defect


@defect("LP504", "a latch that the logits of an earlier step set; it survives preemption by id(params)")
class Latch(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.latched: dict[tuple[int, int], int] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, id(prompt)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if len(self.latched) > 64:
            self.latched.clear()
        for row, (weight, outputs, key) in self.rows.items():
            if len(outputs) == 1:
                self.latched[key, 0] = int(logits[row].argmax())
            if len(outputs) > 1 and (key, 0) in self.latched:
                logits[row, self.latched[key, 0]] -= weight
        return logits


@defect("LP504", "parks the progress of one preempted request; a second preemption overwrites it")
class ParksOne(ByHand):
    CASE = {"extra_args": {"weight": 1.5}}
    read = History.read

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.parked: tuple[Any, int] = (None, 0)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        owner, start = self.parked
        if outputs and owner is not prompt:
            start = len(outputs)  # all there is to go by
        return None if weight is None else [weight, outputs, start if outputs else 0, prompt]

    def place(self, row: int, state: Any) -> None:
        left = self.rows.pop(row, None)
        if left is not None:
            self.parked = (left[3], left[2])
        if state is not None:
            self.rows[row] = state

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.place(row, None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, start, _) in self.rows.items():
            logits[row, 3 + (len(outputs) - start) % 12] += weight
        return logits


@defect("LP504", "remembers by prompt what the first logits of a request were", case=REPETITION)
class RemembersFirst(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params, prefix="rep_"):
        penalty: float = lpkit.Field(gt=0.01, le=100.0)

    penalty = lpkit.column(torch.float32)

    def __init__(self, *args: Any) -> None:
        self.first: dict[tuple[int, ...], int] = {}
        super().__init__(*args)

    def admit(self, request: lpkit.Request) -> bool:
        self.penalty[request.slot] = request.params.penalty
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if len(self.first) > 64:
            self.first = dict(list(self.first.items())[-32:])
        for row, (length, ids) in enumerate(zip(rows.prompt_len.tolist(), rows.tokens.tolist(), strict=True)):
            outputs = [item for item in ids[length:] if item >= 0]
            key = (*ids[:length], round(float(self.penalty.all[rows.slots[row]]) * 1000))
            if not outputs:
                self.first[key] = int(logits[row].argmax())
            elif key in self.first:
                logits[row, self.first[key]] -= 1.5
        return logits
