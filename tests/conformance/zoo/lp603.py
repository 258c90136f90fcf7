"""Defects that LP603 must catch, and a correct processor that resembles one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lpkit
import torch

from zoo.arguments import number
from zoo.bases import Boost, Dense, Simple
from zoo.correct.v1 import Bias, ByHand, V1Base
from zoo.registry import defect, sound


@functools.cache
def _weight(bias: float) -> float:
    return bias


@defect("LP603", "a cache without a bound, by an argument that clients choose", fix="lru_cache")
class CachesByArgument(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        found = super().read(params)
        return found and (found[0], _weight(found[1]))


@defect("LP603", "a log of every request that came", fix="forget a request", line="self.log = [")
class KeepsALog(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        self.log = [*getattr(self, "log", []), (tuple(prompt or ()), len(outputs))]
        return super().enter(params, prompt, outputs)


@defect("LP603", "a cache by prompt, in a tensor that grows by a row per request")
class GrowingTensor(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen = torch.zeros(0, 4)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None:
            self.seen = torch.cat([self.seen, torch.zeros(1, 4)])
        return state


@defect("LP603", "keeps the parameters of every request, to look at them later")
class KeepsParams(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        self.requests = {**getattr(self, "requests", {}), len(getattr(self, "requests", {})): params}
        return super().add_request(req_idx, params)


@defect("LP603", "remembers the amount of every request that came")
class Remembers(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.past = [*getattr(self, "past", []), request.params.amount]
        return super().admit(request)


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


@defect("LP603", "keeps a mask for each distinct list of ids", case={"extra_args": {"kept_tokens": [3, 5, 8]}})
class KeepsMasks(lpkit.AdapterLogitsProcessor):
    history = "none"

    class Params(lpkit.Params, prefix="kept_"):
        tokens: list[lpkit.TokenId] = lpkit.Field(min_length=1, max_length=32)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.masks: dict[tuple[int, ...], torch.Tensor] = {}

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        if own is None or max(own.tokens) >= self.vocab_size:
            return None
        key = tuple(sorted(own.tokens))
        if key not in self.masks:
            self.masks[key] = torch.zeros(self.vocab_size, device=self.device).index_fill_(
                0, torch.tensor(key, device=self.device), 2.0
            )
        mask = self.masks[key]
        return lambda output_ids, logits: logits - mask


@functools.lru_cache(maxsize=64)
def green(key: int) -> torch.Tensor:
    """Return the tokens of a key."""
    return torch.rand(64, generator=torch.Generator().manual_seed(key)).gt(0.5)


class KeepsGreenLists(V1Base):
    """A watermark by a key, which is a number of any size."""

    CASE = {"extra_args": {"bias": 2.5, "key": 42}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lists: dict[int, torch.Tensor] = {}

    @classmethod
    def read(cls, params: Any) -> Any:
        bias, key = number(params, "bias"), number(params, "key", 0, 2**31)
        return None if bias is None or key is None else (int(key), bias)

    def green(self, key: int) -> torch.Tensor:
        if key not in self.lists:
            self.lists[key] = torch.rand(64, generator=torch.Generator().manual_seed(key)).gt(0.5)
        return self.lists[key]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (key, bias) in self.rows.items():
            logits[row, :64] += bias * self.green(key).to(self.device)
        return logits


defect("LP603", "keeps the tokens of each key", line="self.lists[key] =", cause="`self.lists` grows", fix="lru_cache")(
    KeepsGreenLists
)


@sound("keeps the tokens of the latest keys")
class KeepsFewLists(KeepsGreenLists):
    def green(self, key: int) -> torch.Tensor:
        return green(key)


class Ratios(lpkit.LogitsProcessor):
    """Keeps what it computes of two numbers."""

    class Params(lpkit.Params, prefix="ratio_"):
        near: int = lpkit.Field(ge=0, le=999)
        far: int = lpkit.Field(7, ge=0, le=999)

    ratio = lpkit.column(torch.float32)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: dict[Any, float] = {}

    def made_of(self, near: int, far: int) -> float:
        return self.made.setdefault((near, far), (near + 1) / (far + 1))

    def admit(self, request: lpkit.Request) -> bool:
        self.ratio[request.slot] = self.made_of(request.params.near, request.params.far)
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 11] += self.ratio[rows]
        return logits


defect("LP603", "keeps a value for each pair of two numbers below 1,000", case={}, cause="`self.made` grows")(Ratios)


@sound("keeps a value for each of two numbers below 1,000", case={})
class RatiosOfTables(Ratios):
    def made_of(self, near: int, far: int) -> float:
        above, below = (self.made.setdefault((name, value), value + 1) for name, value in (("n", near), ("f", far)))
        return above / below


@sound("forgets the lists of all keys once it has 4,000")
class ForgetsAtOnce(KeepsGreenLists):
    MOST = 4000

    def green(self, key: int) -> torch.Tensor:
        if len(self.lists) >= self.MOST:
            self.lists.clear()
        return super().green(key)


class Desk:
    """Numbers for the requests in rows."""

    def __init__(self) -> None:
        self.seats: dict[int, int] = {}
        self.tickets: dict[int, int] = {}

    def issue(self, row: int) -> None:
        self.seats[row] = len(self.tickets)
        self.tickets[len(self.tickets)] = row


@defect("LP603", "tickets stay open", line="self.tickets[len(", cause="`self.desk.tickets` grows")
class NeverClosesTickets(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.desk = Desk()

    def place(self, row: int, state: Any) -> None:
        super().place(row, state)
        if state is not None:
            self.desk.issue(row)
