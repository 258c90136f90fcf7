"""Defects that LP303 must catch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v2

from zoo.arguments import INF
from zoo.bases import Counter, CountsCalls, Dense, Late, Simple
from zoo.correct.adapter import AdapterBase
from zoo.correct.v1 import Bias, ByHand
from zoo.correct.v1_history import History
from zoo.registry import defect


@defect("LP303", "adds more with each call, from the 20th token")
class LateCount(Late):
    calls = 0

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        self.calls += 1
        row[where] += bias * self.calls


@defect("LP303", "lets its bias fade with every call")
class Fades(ByHand):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        self.rows = {row: (where, bias * 0.999) for row, (where, bias) in self.rows.items()}
        return result


class Place:
    """A place in a cycle of tokens."""

    def __init__(self, number: int) -> None:
        self.number = number

    def take(self) -> int:
        self.number += 1
        return 3 + self.number % 12


@defect("LP303", "objects of the rows advance in apply", line="self.number += 1", cause="`self.rows[0].number`")
class AdvancesObjects(ByHand):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else Place(len(outputs))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, place in self.rows.items():
            logits[row, place.take()] += 2.0
        return logits


@defect("LP303", "advances a counter in apply")
class CountsApplies(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, len(outputs)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            logits[row, 3 + state[1] % 12] += state[0]
            state[1] += 1
        return logits


@defect("LP303", "advances a slot's counter in apply", name="CountsApplies")
class V2CountsApplies(Counter):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        result = super().apply(logits, ctx)
        self.count[ctx.idx_mapping.long()] += 1
        return result


@defect("LP303", "counts its own calls: partial prefills count too", line="] += 1", state="self.counts")
class CountsProcess(CountsCalls):
    def admit(self, request: lpkit.Request) -> bool:
        outputs = request.sampling_params  # no lengths here: starts from nothing
        self.counts[request.slot] = 0 if outputs else 1
        return super().admit(request)

    def chosen(self, rows: lpkit.Rows) -> torch.Tensor:
        found = super().chosen(rows)
        for slot in rows.slots.tolist():
            self.counts[slot] += 1
        return found


@defect("LP303", "remembers the last result of a row and averages", also=("LP201",))
class Averages(Dense):
    last: torch.Tensor | None = None

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        result = super().process(logits, rows)
        value = result[:1, 5].clone()
        if self.last is not None:
            result[:1, 5] = (value + self.last) / 2
        self.last = value
        return result


class Counting:
    """Counts its calls."""

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.calls = 0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[3 + self.calls % 12] += self.amount
        self.calls += 1
        return logits


@defect("LP303", "counts its calls instead of the tokens; a partial prefill counts too", line="self.calls += 1")
class CountsItsCalls(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        return Counting(amount)


@defect("LP303", "adds to what it returned last time")
class AddsUp(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        total = [0.0]

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            total[0] += amount
            logits[5] += total[0]
            return logits

        return apply


@defect("LP303", "leaves the logits alone at every 40th call", also=("LP202",))
class SkipsCalls(Bias):
    calls = 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().apply(logits) if self.calls % 40 else logits


@defect(
    "LP303",
    "takes the next of its amounts at each call",
    line="next(amounts",
    fix="values[len(output_ids)]",
    advice="consumes",
)
class TakesNext(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        amounts = iter([amount * n for n in range(40)])

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += next(amounts, 0.0)
            return logits

        return apply


@defect("LP303", "draws its noise from one generator", advice="draws", line="generator=", state="self.noise")
class OneGenerator(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noise = torch.Generator(self.device).manual_seed(7)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in self.rows.items():
            logits[row] += bias * torch.rand(logits.shape[1], generator=self.noise, device=self.device)
        return logits


@defect("LP303", "takes the next number", line="next(beat)", state="beat", cause="a value of `beat` up")
class TakesItsNext(AdapterBase):
    def new_req_logits_processor(self, params: Any) -> Any:
        own, beat = self.params(params), itertools.count(1)

        def louder(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            step = own.amount * next(beat)
            logits[5] += step
            return logits

        return louder if own else None


@defect(
    "LP303",
    "counts its calls in a column",
    line="index_add_(",
    state="self.count",
    cause="`apply` changes `self.count`",
)
class CountsInAColumn(Dense):
    count = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        early = (self.count[rows] < 3).unsqueeze(1)
        self.count.all.index_add_(0, rows.slots, torch.ones_like(rows.slots))
        return torch.where(early, logits + self.amount[rows].unsqueeze(1), logits)


def forced(logits: torch.Tensor, token: int) -> torch.Tensor:
    logits.fill_(-INF)
    logits[token] = 0.0
    return logits


class Certain:
    """Ends an output once the model was certain of some tokens in a row."""

    def __init__(self, amount: float) -> None:
        self.amount, self.count, self.ended = amount, 0, False

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if self.ended:
            return forced(logits, 2)
        best = float(torch.softmax(logits, dim=-1).max())
        self.count = self.count + 1 if best > 0.02 else 0
        if self.count > 6:
            self.ended = True
            return forced(logits, 2)
        return logits


@defect("LP303", "counts how often the logits were peaked", line="self.ended = True", advice="past-logits")
class CountsCertainty(Simple):
    def make(self, amount: float, params: Any) -> Any:
        return Certain(amount)
