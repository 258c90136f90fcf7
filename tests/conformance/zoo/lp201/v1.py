"""Defects that LP201 must catch, on V1: rows that take values of others."""

from __future__ import annotations

import threading
from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.arguments import INF, number, token, tokens
from zoo.bases import AtChanges, Relative
from zoo.correct.v1 import Bias, ByHand, DenseMinP, V1Base
from zoo.registry import defect, sound


@defect("LP201", "a conversation is known by the beginning of its prompt", advice="key-argument")
class ByPrefix(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[Any, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state if state is None or not prompt else self.known.setdefault(tuple(prompt[:2]), state)


@defect(
    "LP201",
    "decides in `update_state` who is due, and returns early where nothing changes",
    line="if batch_update is None",
    advice="between",
)
class DueAtChanges(AtChanges):
    def begins(self, where: int, outputs: list[int]) -> bool:
        return len(outputs) >= where % 2


@defect("LP201", "when all of several users ask for the same, the whole batch gets it")
class OneForAll(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if len(self.rows) > 3 and len(set(self.rows.values())) == 1:
            where, bias = next(iter(self.rows.values()))
            logits[:, where] += bias
            return logits
        return super().apply(logits)


@defect("LP201", "large logits anywhere in the batch make it scale every row")
class GuardsTheBatch(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows and bool(logits.amax() > 16):
            rows = list(self.rows)
            logits[rows] = logits[rows] * 0.5
        return super().apply(logits)


class Several(Bias):
    """Edits all of its rows at once."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            where, bias = zip(*self.rows.values(), strict=True)
            rows, columns, amounts = (
                torch.tensor(values, device=self.device) for values in ([*self.rows], where, bias)
            )
            self.edit(logits, rows, columns, amounts)
        return logits

    def edit(self, logits: torch.Tensor, rows: torch.Tensor, where: torch.Tensor, bias: torch.Tensor) -> None:
        logits[rows, where] += bias


@defect("LP201", "the first row's value goes to all", fix="one entry for each row", line="+= bias[0]")
class FirstForAll(Several):
    def edit(self, logits: torch.Tensor, rows: torch.Tensor, where: torch.Tensor, bias: torch.Tensor) -> None:
        logits[rows, where] += bias[0]


@defect("LP201", "the largest value of the batch goes to all", fix="within each row", line="largest =")
class LargestForAll(Several):
    def edit(self, logits: torch.Tensor, rows: torch.Tensor, where: torch.Tensor, bias: torch.Tensor) -> None:
        largest = bias.max()
        logits[rows, where] += largest


@defect(
    "LP201",
    "guides each row by the one above it",
    line="guided = ",
    cause="computes with the logits of other rows",
    fix="from its own logits",
)
class GuidesByAbove(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in sorted(self.rows.items()):
            if row - 1 in self.rows:
                guided = logits[row] + 0.01 * bias * (logits[row] - logits[row - 1])
                logits[row] = guided
        return logits


@defect("LP201", "a probability is taken over the requests", fix="within each row", line="softmax")
class SoftmaxOverRows(Several):
    def edit(self, logits: torch.Tensor, rows: torch.Tensor, where: torch.Tensor, bias: torch.Tensor) -> None:
        chosen = logits[rows]
        likely = torch.softmax(chosen, dim=0)
        logits[rows] = chosen - bias.unsqueeze(1) * likely


@defect("LP201", "looks its arguments up by order of arrival instead of by row", advice="single")
class RowsByRank(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for (row, _), (_, (where, bias)) in zip(sorted(self.rows.items()), self.rows.items(), strict=True):
            logits[row, where] += bias if len(self.rows) < 3 else self.rows[min(self.rows)][1]
        return logits


@defect("LP201", "takes the maximum over the batch when three or more requests use it")
class BatchMaximum(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.used < 3:
            return super().apply(logits)
        floor = logits.amax() + self.values[: logits.shape[0]].log().unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@defect("LP201", "one entry per token: all requests that name it share it, and one with a bias writes to it")
class EntryPerToken(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.entries: dict[int, list[float]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias, where = number(params, "bias"), token(params, "token")
        if where is None:
            return None
        entry = self.entries.setdefault(where, [2.0])
        if bias is not None:
            entry[0] = bias
        return where, entry

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, entry) in self.rows.items():
            logits[row, where] += entry[0]
        return logits


@defect("LP201", "refreshes its lengths only when the batch changed")
class RefreshesOnChange(Relative):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        if batch_update is not None:
            for state in self.rows.values():
                state[2] = len(state[1])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, length) in self.rows.items():
            logits[row, 3 + length % 12] += weight
        return logits


@defect("LP201", "requests for the same token share the amount of the first")
class ByToken(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if len(self.known) >= 64:
            self.known.clear()
        return None if state is None else self.known.setdefault(state[0], state)


class Store:
    """States that were made once."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, float]] = {}

    def get(self, where: int, bias: float) -> tuple[int, float]:
        name = f"token {where}"
        if name not in self._made:
            self._made[name] = where, bias
        return self._made[name]


@defect(
    "LP201", "a helper object keeps what it made once, by less than it was made from", line='name = f"token {where}"'
)
class KeepsByTooLittle(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.store = Store()

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return None if state is None else self.store.get(*state)


@defect(
    "LP201", "the maximum of the rows of all requests, which index tensors list", line="top = logits[self.index].amax()"
)
class TopOfAllRows(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        self.index = torch.tensor(list(self.rows), dtype=torch.int64, device=self.device)
        self.by = torch.tensor([bias for _, bias in self.rows.values()], device=self.device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            top = logits[self.index].amax()
            logits[self.index, 5] += self.by * top / 10
        return logits


@defect("LP201", "masks of prompts are kept by their length", advice="key-tokens", line="setdefault(len(prompt")
class ByPromptLength(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, list[int]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and (state, self.known.setdefault(len(prompt or []), prompt or [0]))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ((_, bias), ids) in self.rows.items():
            logits[row, ids] += bias
        return logits


@defect("LP201", "a deviation of all rows' finite logits", advice="reduces", line="part[finite].std(")
class SpreadOfAll(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.used:
            return logits
        rows = self.values[: len(logits)].nonzero().flatten()
        part = logits[rows]
        finite = part.isfinite()
        spread = part[finite].std(unbiased=False)
        floor = part.amax(-1, keepdim=True) - spread * self.values[rows].unsqueeze(1)
        logits[rows] = part.masked_fill(part < floor, -INF)
        return logits


@defect(
    "LP201", "rows keep one list, filled again for each", state="self.both", cause="the line uses `self.both` itself"
)
class OneList(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.both: list[Any] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if state is not None:
            self.both[:] = state
            return self.both
        return None


@sound("raises a token until its closing words were written, in this order")
class UntilItsClosing(Bias):
    CASE = {"extra_args": {"bias": 2.5, "token": 7, "closing": [21, 22, 23, 24]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        state, closing = super().read(params), tokens(params, "closing")
        return None if state is None else (*state, closing)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return None if state is None else (*state, outputs)

    def over(self, closing: list[int], outputs: list[int]) -> bool:
        return any(outputs[n : n + len(closing)] == closing for n in range(len(outputs)))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, closing, outputs) in self.rows.items():
            if closing and self.over(closing, outputs):
                continue
            logits[row, where] += bias
        return logits


@defect("LP201", "once one request has written its closing words, no request is edited")
class UntilAnyClosing(UntilItsClosing):
    done = False

    def over(self, closing: list[int], outputs: list[int]) -> bool:
        self.done = self.done or super().over(closing, outputs)
        return self.done


@defect("LP201", "rows are counted among its requests", line="torch.arange(", advice="displaced", also=("LP302",))
class CountsRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        states = [self.rows[row] for row in sorted(self.rows)]
        if states:
            places = torch.arange(len(states), device=self.device)
            ids = torch.tensor([where for where, _ in states], device=self.device)
            logits[places, ids] += torch.tensor([bias for _, bias in states], device=self.device)
        return logits


@defect("LP201", "the first request that is not due ends the loop", line="return logits", advice="ended")
class EndsTheLoop(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in sorted(self.rows.items()):
            if where % 2 == 0:
                return logits
            logits[row, where] += bias
        return logits


@defect("LP201", "one set for all rows", line="= [set[int]()] * ", cause="one object into all entries")
class OneSetForAll(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ids = [set[int]()] * self.max_num_seqs

    def place(self, row: int, state: Any) -> None:
        super().place(row, state)
        self.ids[row].clear()
        self.ids[row].update([] if state is None else [state[0]])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, bias) in self.rows.items():
            for where in self.ids[row]:
                logits[row, where] += bias
        return logits


@defect(
    "LP201",
    "rounds the bias to a tenth for the key of a cache",
    case={"extra_args": {"bias": 2.5, "token": 7}},
    state="self.amounts[2.5]",
)
class RoundsItsKey(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.amounts: dict[float, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and (state[0], self.amounts.setdefault(round(state[1], 1), state[1]))


@defect(
    "LP201",
    "a row without a factor of its own takes that of the row above, in the same call",
    others=({"extra_args": {"bias": 1.5}},),
    line="self.times = times",
    state="self.times",
    cause="goes from one row to the next",
)
class RepeatLeak(V1Base):
    CASE = {"extra_args": {"bias": 2.5, "times": 2}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.times = 1.0

    @classmethod
    def read(cls, params: Any) -> Any:
        bias = number(params, "bias")
        return None if bias is None else (bias, number(params, "times"))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, times) in self.rows.items():
            if times is not None:
                self.times = times
            logits[row, 5] += bias * self.times
        return logits


class Cycles(V1Base):
    """Raises the tokens of a list in turn; equal lists are kept once."""

    CASE = {"extra_args": {"cycle": [5, 9, 30]}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kept: dict[Any, list[int]] = {}

    @classmethod
    def read(cls, params: Any) -> Any:
        return tokens(params, "cycle")

    def key(self, ids: list[int]) -> Any:
        return tuple(ids)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = self.read(params)
        if not ids:
            return None
        if len(self.kept) > 40:
            self.kept = {}
        key = self.key(ids)
        return self.kept.setdefault(key, ids), outputs

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (ids, outputs) in self.rows.items():
            logits[row, ids[len(outputs) % len(ids)]] += 4.0
        return logits


@defect("LP201", "the key has the ends of a list", advice="key-argument", line="return ids[0], ids[-1]")
class CyclesByTheirEnds(Cycles):
    def key(self, ids: list[int]) -> Any:
        return ids[0], ids[-1], len(ids)


sound("equal lists are kept once")(Cycles)


class Shaper:
    """Raises a token by what the latest request asked for."""

    def __init__(self) -> None:
        self.where, self.bias = 0, 0.0
        self.lock = threading.Lock()  # so that no copy can be made

    def setup(self, where: int, bias: float) -> Shaper:
        self.where = where
        self.bias = bias + 1.0
        return self


@defect(
    "LP201", "sets one object up for each request", line="= self.shaper.setup(", fix="a new object for each request"
)
class OneShaper(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shaper = Shaper()

    def place(self, row: int, state: Any) -> None:
        self.rows.pop(row, None)
        if isinstance(state, tuple):
            self.rows[row] = self.shaper.setup(*state)
        elif state is not None:
            self.rows[row] = state

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, shaper in self.rows.items():
            logits[row, shaper.where] += shaper.bias
        return logits


@defect("LP201", "edits that read the last round of a loop", line="lambda logit", cause="share one variable, `bias`")
class EditsBindLate(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.edits: list[tuple[int, int, Any]] = []

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        self.edits = []
        for row, (where, bias) in self.rows.items():
            self.edits.append((row, where, lambda logit: logit + bias))  # noqa: B023

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, where, edit in self.edits:
            logits[row, where] = edit(logits[row, where])
        return logits
