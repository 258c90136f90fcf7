"""Request-level processors with one thing wrong each."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any, ClassVar

import lpkit
import torch

from zoo.adapter_correct import AdapterBase
from zoo.arguments import INF
from zoo.registry import defect


class Simple(AdapterBase):
    """Makes one callable per request with ``make``; the sound frame."""

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return None if own is None else self.make(own.amount, params)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        raise NotImplementedError


@defect("LP201", "the callable reads the amount from the processor: the last request's")
class LateBinding(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        self.amount = amount

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += self.amount
            return logits

        return apply


@defect("LP108", "a mutable default argument, shared by all callables")
class SharedDefault(Simple):
    def make(self, amount: float, params: Any, settings: dict[str, float] = {}) -> Callable[..., torch.Tensor]:  # noqa: B006
        settings["amount"] = amount

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += settings["amount"]
            return logits

        return apply


class Counting:
    """Counts its calls."""

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.calls = 0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[3 + self.calls % 12] += self.amount
        self.calls += 1
        return logits


@defect("LP303", "counts its calls instead of the tokens; a partial prefill counts too")
class CountsItsCalls(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        return Counting(amount)


@defect("LP211", "counts its calls, and only those with another length than the last")
class CountsLengths(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        seen: list[int] = []

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if seen[-1:] != [len(output_ids)]:
                seen.append(len(output_ids))
            logits[3 + len(seen) % 12] += amount
            return logits

        return apply


@defect("LP211", "knows the tokens that came since it was made")
class SinceBirth(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        born: list[int] = []

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if not born:
                born.append(len(output_ids))
            for item in output_ids[born[0] :]:
                logits[item] -= amount
            return logits

        return apply


@defect("LP210", "one stateful callable for each SamplingParams object: twins share it")
class CallablePerParams(Simple):
    def __init__(self, *args: Any) -> None:
        self.made: dict[int, tuple[Any, Any]] = {}
        super().__init__(*args)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        longest = [0]

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            longest[0] = max(longest[0], len(output_ids))
            logits[3 + longest[0] % 12] += amount
            return logits

        self.made = dict(list(self.made.items())[-63:])
        return self.made.setdefault(id(params), (params, apply))[1]


@defect("LP108", "callables by amount in a class attribute, made for the first instance")
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


@defect("LP105", "writes its progress into the request's extra_args")
class WritesProgress(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            params.extra_args["ad_seen"] = len(output_ids)
            logits[5] += amount
            return logits

        return apply


@defect("LP104", "any integer is a token id", case={"extra_args": {"ad_amount": 9}})
class AmountIsAToken(Simple):
    class Params(lpkit.Params, prefix="ad_"):
        amount: int = lpkit.Field(ge=0)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[int(amount)] += 2.0
            return logits

        return apply


@defect("LP109", "returns nothing before the first token")
class NothingAtFirst(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., Any]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> Any:
            if not output_ids:
                return None
            logits[5] += amount
            return logits

        return apply


@defect("LP303", "adds to what it returned last time")
class AddsUp(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        total = [0.0]

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            total[0] += amount
            logits[5] += total[0]
            return logits

        return apply


@defect("LP305", "lets the end come: sets its logit to the largest")
class LetsTheEndCome(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(output_ids) >= 2:
                logits[4] = logits.max() + abs(amount)
            return logits

        return apply


@defect("LP306", "a temperature of its own by the spread of the row")
class OwnTemperature(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            spread = logits.max() - logits.min()
            return (logits - logits.max()) / (1 + spread / 50) * (1 + abs(amount) / 10)

        return apply


@defect("LP307", "forbids what is as likely as the best")
class ForbidsTies(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            ties = logits == logits.max()
            if int(ties.sum()) > 1:
                logits[ties] = -INF
            else:
                logits[5] += amount
            return logits

        return apply


@defect("LP502", "appends its guess to the output list")
class AppendsGuess(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(output_ids) == 6:
                output_ids[-1:] = [*output_ids[-1:], *output_ids[:1]]
            logits[3 + len(output_ids) % 12] += amount
            return logits

        return apply


@defect("LP502", "keeps the prompt sorted, for a faster search")
class SortsPrompt(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            prompt_ids.sort()
            logits[prompt_ids[0]] += amount
            return logits

        return apply


@defect("LP601", "a generator of its own without a seed")
class Unseeded(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        rng = random.Random()

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += amount * rng.random()
            return logits

        return apply


@defect("LP602", "random.seed, then random.random")
class SeedsRandom(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            random.seed(len(output_ids))
            logits[5] += amount * random.random()
            return logits

        return apply


@functools.cache
def score(output_ids: tuple[int, ...]) -> int:
    """Of a whole output: an entry for every prefix of every request."""
    return sum(output_ids) % 12


@defect("LP603", "functools.cache over whole outputs")
class CachesOutputs(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[3 + score((*prompt_ids, *output_ids))] += amount
            return logits

        return apply


@defect("LP604", "sums weights in the order of a set of words")
class OrderOfWords(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        words = {f"word{i}" for i in range(12)}

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            for place, word in enumerate(words):
                logits[3 + int(word[4:])] += amount * place / 10
            return logits

        return apply


@defect("LP701", "every adapter runs row by row; this one is otherwise right")
class OrdinaryAdapter(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += amount
            return logits

        return apply


@defect("LP703", "turns the row into a list")
class RowToList(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if max(logits.tolist()) > 0:
                logits[5] += amount
            return logits

        return apply


@defect("LP804", "declares that it reads lengths, and reads ids")
class ReadsMoreThanLengths(Simple):
    history = "length"

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1]] -= amount
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


@defect("LP201", "one callable with a state for all requests with equal arguments")
class CallablePerAmount(Simple):
    def __init__(self, *args: Any) -> None:
        self.made: dict[float, Alternating] = {}
        super().__init__(*args)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        self.made = dict(list(self.made.items())[-255:])
        return self.made.setdefault(amount, Alternating(amount))
