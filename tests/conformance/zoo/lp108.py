"""Defects that LP108 must catch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from lpkit import v2

from zoo.bases import Boost, Simple
from zoo.correct.v1 import Bias, V1Base
from zoo.registry import defect


@defect("LP108", "state in a class attribute", advice="class")
class ClassState(Bias):
    shared: ClassVar[dict[int, Any]] = {}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shared.clear()
        self.rows = self.shared


@defect("LP108", "the table of values is a class attribute")
class ClassTable(Boost):
    table: ClassVar[torch.Tensor] = torch.zeros(512)

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.values = self.table[: req_states.max_num_reqs]


@defect(
    "LP108",
    "callables by amount in a class attribute, made for the first instance",
    line="cache: ClassVar",
    state="ClassCache.cache",
)
class ClassCache(Simple):
    cache: ClassVar[dict[int, Any]] = {}
    made: ClassVar[int] = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        type(self).cache = {}

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        self.cache[len(self.cache)] = amount
        number = len(self.cache) - 1
        cache = type(self)

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += cache.cache.get(number, 0.0)
            return logits

        return apply


@defect("LP108", "rows in a dict of the class: those of an earlier instance are still there")
class RowsOfTheClass(V1Base):
    CASE = {"extra_args": {"bias": 0.5}}
    rows: dict[int, Any] = {}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device = device

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row, 3] += amount
        return logits


@defect("LP108", "counts its requests in a default argument", state="seen", advice="default")
class CountsInADefault(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int], seen: list[int] = [0]) -> Any:  # noqa: B006
        state = super().enter(params, prompt, outputs)
        seen[0] += state is not None
        return state and (state[0], state[1] + seen[0] / 100)


@defect(
    "LP108",
    "adds a request's token to the preset itself",
    line="ids += ",
    cause="`AddsToAPreset.presets['plain']` itself",
    advice="entry",
)
class AddsToAPreset(Bias):
    presets: ClassVar[dict[str, list[int]]] = {"plain": [11]}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state, ids = super().enter(params, prompt, outputs), self.presets["plain"]
        ids += [state[0]] if state and state[0] not in ids else []
        return state and (ids[0], state[1] + len(ids) / 100)


@functools.cache
def seen_with(amount: float) -> Callable[..., torch.Tensor]:
    seen: set[int] = set()

    def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        seen.update(output_ids)
        logits[sorted(seen)] -= amount
        return logits

    return rule


@defect("LP108", "callables of a cached function", line="@functools.cache", state="seen_with")
class SharedByCache(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        return seen_with(amount)


class Lift:
    """Raises a token by what the latest request asked for."""

    def __init__(self) -> None:
        self.amount = 0.0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[5] += self.amount
        return logits


@defect("LP108", "one callable in the body of the class", line="lift =", state="OneLift.lift.amount")
class OneLift(Simple):
    lift = Lift()

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        self.lift.amount = amount
        return self.lift
