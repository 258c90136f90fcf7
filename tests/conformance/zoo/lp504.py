"""Defects that LP504 must catch."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import torch
from lpkit.v1 import BatchUpdate

from zoo.bases import AtChanges
from zoo.correct.v1 import ByHand
from zoo.correct.v1_history import History
from zoo.registry import defect, sound


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


@defect(
    "LP504",
    "decides in `update_state` who is due, and returns early where nothing changes",
    line="if batch_update is None",
    advice="between",
)
class LateAtChanges(AtChanges):
    pass


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


@sound("tallies its outputs as they come")
class Tallies(History):
    MOST = 2**31

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, len(outputs), len(outputs)]

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for state in self.rows.values():
            if len(state[1]) != state[3]:
                state[2:] = (state[2] + len(state[1]) - state[3]) % self.MOST, len(state[1])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, tally, _) in self.rows.items():
            logits[row, 3 + tally // 50 % 12] += weight
        return logits


@defect("LP504", "tallies its outputs in a byte", cause="changes it from call to call")
class TalliesInAByte(Tallies):
    MOST = 256


@sound("lowers the last 512 tokens, in a ring")
class LowersARing(History):
    KEPT: int | None = 512

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight, ring = self.read(params), deque(outputs, self.KEPT)
        return None if weight is None else {"weight": weight, "outputs": outputs, "read": len(outputs), "ring": ring}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            for token in state["outputs"][state["read"] :]:
                if len(state["ring"]) >= 512:
                    state["ring"].popleft()
                state["ring"].append(token)
            state["read"] = len(state["outputs"])
            logits[row, [token for token in {*state["ring"]} if token >= 0]] -= state["weight"]
        return logits


@defect("LP504", "lowers the last 512 tokens of a running request, and all of one that comes back", cause="['ring']")
class LowersAllAtFirst(LowersARing):
    KEPT = None


@defect(
    "LP504",
    "a set of the output at the Add, which later tokens do not join",
    line="return None if weight is None",
    cause="wrote it when r3 arrived, and nothing has since",
)
class CopiesTheOutput(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else (weight, frozenset(outputs))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, seen) in self.rows.items():
            logits[row, [token for token in seen if token >= 0]] -= weight
        return logits


@defect(
    "LP504",
    "raises a token the more, the more often some request wrote a token twice",
    line="self.doubles.append(",
    cause="all instances share `RaisesWithDoubles.doubles`",
    state="RaisesWithDoubles.doubles",
)
class RaisesWithDoubles(History):
    doubles: ClassVar[list[int]] = []

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if len(outputs) > 20 and outputs[-1] == outputs[-2] >= 0:
                self.doubles.append(outputs[-1])
            logits[row, 9] += weight + len(self.doubles)
        return logits


@sound("keeps what it has read of the output, and how much that is")
class LowersWhatItHasRead(History):
    MOST = 2**31

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight, read = self.read(params), outputs[: len(outputs) - outputs.count(-1)]
        return None if weight is None else {"weight": weight, "outputs": outputs, "bag": read, "count": len(read)}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            bag, outputs = state["bag"], state["outputs"]
            if len(outputs) < state["count"]:
                bag.clear()
                state["count"] = 0
            for token in outputs[state["count"] :]:
                if token >= 0:
                    self.put(bag, token)
                    state["count"] += 1
            logits[row, list({*bag})] -= state["weight"]
        return logits

    def put(self, bag: list[int], token: int) -> None:
        bag.append(token)


@defect(
    "LP504",
    "keeps the last forty tokens that it has read, and all of the output of a request that comes back",
    line="bag.append(token)",
    cause="changes it from call to call",
    state="self.rows[0]['bag']",
)
class LowersTheLastForty(LowersWhatItHasRead):
    def put(self, bag: list[int], token: int) -> None:
        if len(bag) >= 40:
            bag.pop(0)
        bag.append(token)
