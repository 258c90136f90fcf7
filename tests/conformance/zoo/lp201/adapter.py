"""Defects that LP201 must catch, of callables for each request."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from zoo.bases import Simple
from zoo.correct.adapter import AdapterBase
from zoo.registry import defect


@defect(
    "LP201",
    "the callable reads the amount from the processor: the last request's",
    advice="common",
    line="self.amount =",
)
class LateBinding(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        self.amount = amount

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += self.amount
            return logits

        return apply


class Alternating:
    """Lowers a token in every other state; knows the state from the last call, or counts again."""

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.length, self.odd = -1, False

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if output_ids and len(output_ids) == self.length + 1:
            self.odd ^= output_ids[-1] % 2 == 1
        else:
            self.odd = sum(output_ids) % 2 == 1
        self.length = len(output_ids)
        if self.odd:
            logits[5] -= self.amount
        return logits


@defect("LP201", "one callable with a state for all requests with equal arguments", advice="same-callable")
class CallablePerAmount(Simple):
    def __init__(self, *args: Any) -> None:
        self.made: dict[float, Alternating] = {}
        super().__init__(*args)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        self.made = dict(list(self.made.items())[-255:])
        return self.made.setdefault(amount, Alternating(amount))


class Meter:
    seen: ClassVar[dict[int, bool]] = {}

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        self.seen.update(dict.fromkeys(output_ids[-1:], True))
        for item in self.seen:
            logits[item] -= self.amount
        return logits


@defect(
    "LP201",
    "the callables of all requests note their tokens in one dict of their class",
    line="seen: ",
    state="Meter.seen",
    cause="it stands in the body of the class",
    fix="make `Meter.seen` in `__init__`",
    also=("LP108",),
)
class NotesInTheClass(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        return Meter(amount)


class Weights:
    """The amount of a request, as an object."""

    def __init__(self) -> None:
        self.amount = 0.0

    def taken(self, amount: float) -> Weights:
        self.amount = amount
        return self


@defect("LP201", "all callables are bound to one object", cause="the line uses `self` itself", line="return self")
class OneObject(AdapterBase):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.weights = Weights()

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return functools.partial(self.raised, self.weights.taken(own.amount)) if own else None

    @staticmethod
    def raised(weights: Weights, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[5] += weights.amount
        return logits


@defect("LP201", "amounts by token", line="self.lists.get(", state="self.lists", cause="`self.lists` carries something")
class ListsByToken(Simple):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lists: dict[int, float] = {}

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += self.of(output_ids[-1] if output_ids else 0, amount)
            return logits

        return rule

    def of(self, token: int, amount: float) -> float:
        kept = self.lists.get(token)
        if kept is None:
            kept = self.lists[token] = 2 * amount
        return kept


@defect("LP201", "callables share a list", line="words = self.words", state="words", cause="other requests change")
class OneListForAll(Simple):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.words: list[int] = []

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        words = self.words

        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            words.extend(output_ids[-1:])
            logits[sorted({*words})] += amount
            return logits

        return rule


NOTHING: dict[int, None] = {}


def lowered(ids: list[int], logits: torch.Tensor, *, amount: float, seen: Any = NOTHING) -> torch.Tensor:
    seen.update(dict.fromkeys(ids[-1:]))
    logits[[*seen]] -= amount
    return logits


@defect(
    "LP201",
    "notes tokens in a default",
    line="seen: Any = NOTHING",
    state="seen",
    cause="`seen` is not",
    also=("LP108",),
)
class NotesInADefault(Simple):
    def make(self, amount: float, params: Any) -> Any:
        return functools.partial(lowered, amount=amount)


@functools.lru_cache(maxsize=64)
def lowered_ids(size: int, first: int, device: torch.device) -> torch.Tensor:
    mask = torch.zeros(size, dtype=torch.bool, device=device)
    mask[first] = True
    return mask


@defect(
    "LP201", "a cached mask is changed in place", advice="key-changed", line="mask[output_ids] = True", also=("LP108",)
)
class ChangesTheCachedMask(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            mask = lowered_ids(logits.shape[-1], 9, logits.device)
            mask[output_ids] = True
            return torch.where(mask, logits - amount, logits)

        return apply
