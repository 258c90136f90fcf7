"""Defects that LP201 must catch, of classes with lpkit's columns."""

from __future__ import annotations

import functools
from typing import Any

import lpkit
import torch

from zoo.arguments import INF, REPETITION
from zoo.bases import Dense
from zoo.correct.portable import PortableRepetition
from zoo.correct.portable_odd import Chance
from zoo.lp308 import WritesByAge
from zoo.registry import defect, sound


@defect("LP201", "draws its tokens by the number of the slot", line="mix(rows.slots", advice="number")
class DrawsBySlot(Dense):
    history = "length"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        seeds = lpkit.rng.mix(rows.slots, rows.total_len).unsqueeze(1)
        chosen = lpkit.rng.uniform(seeds, torch.arange(logits.shape[1], device=logits.device)) < 0.5
        return logits + chosen * self.amount[rows].unsqueeze(1)


@defect(
    "LP201",
    "keeps the argument of the request that was admitted last",
    advice="common",
    line="self.last = request.params.amount",
)
class LastAdmitted(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.last = request.params.amount
        return super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.last
        return logits


@defect("LP201", "rows.index instead of rows.slots", advice="slot-by-row", line="self.amount.all")
class IndexForSlots(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount.all[rows.index]
        return logits


@defect(
    "LP201",
    "keeps the tokens while their shape stays the same",
    case=REPETITION,
    line="self.seen = rows.tokens.clone()",
)
class KeepsTokens(PortableRepetition):
    seen: torch.Tensor | None = None

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        if self.seen is None or self.seen.shape != rows.tokens.shape:
            self.seen = rows.tokens.clone()
        values, penalty = logits[self.seen], self.penalty[rows].unsqueeze(1)
        logits[self.seen] = torch.where(values > 0, values / penalty, values * penalty)


@defect("LP201", "compares with the least threshold of the batch", case={})
class ChanceLeast(Chance):
    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return super().least(rows).amin().expand(rows.slots.shape[0])


@defect("LP201", "curves by the sign of an amount", fix="the key", line="self.curves.get(", state="self.curves")
class CurvesBySign(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.curves: dict[bool, float] = {}

    def admit(self, request: lpkit.Request) -> bool:
        curve = self.curves.get(request.params.amount > 0)
        if curve is None:
            curve = self.curves[request.params.amount > 0] = 2 * request.params.amount
        self.amount[request.slot] = curve
        return True


@defect("LP201", "numbers its draws by the row and the size of the engine", advice="size", line="self.max_num_reqs")
class DrawsByRow(Dense):
    history = "length"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        number = rows.total_len * self.max_num_reqs + rows.index
        return logits * (1 + self.amount[rows] * (number % 11) / 20).unsqueeze(1)


@defect("LP201", "a list grows", advice="key-changed", line="amounts.append", state="KeepsAndAdds.kept")
class KeepsAndAdds(Dense):
    @functools.lru_cache(maxsize=4)  # noqa: B019
    def kept(self, kind: str) -> list[float]:
        return [0.0]

    def admit(self, request: lpkit.Request) -> bool:
        amounts = self.kept("sum")
        amounts.append(request.params.amount)
        self.amount[request.slot] = sum(amounts)
        return True


@defect("LP201", "a strict request makes all requests strict", advice="reduces", line="strict.any()")
class StrictForAll(Dense):
    def floor(self, strict: torch.Tensor) -> torch.Tensor:
        wanted = strict.any()
        return torch.where(wanted, 0.0, 2.0)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.floor(self.amount[rows] > 1.4)
        return logits


class Listed(lpkit.LogitsProcessor):
    """Raises the ids of a list; the sound version."""

    CASE = {"extra_args": {"listed_ids": [5, 9, 11]}}
    history = "length"

    class Params(lpkit.Params, prefix="listed_"):
        ids: list[lpkit.TokenId] = lpkit.Field(min_length=1, max_length=64)

    ids = lpkit.ragged(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.ids[request.slot] = request.params.ids
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]
        logits[ids] = logits[ids] + self.share(ids)

    def share(self, ids: torch.Tensor) -> torch.Tensor:
        return 3.0 / (ids >= 0).sum(1, keepdim=True)


sound("the ids of a list share a boost")(Listed)


@defect("LP201", "the boost is divided by the width of the batch", advice="padding-width", line="ids.shape[1]")
class SharesTheWidth(Listed):
    def share(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.full((len(ids), 1), 3.0 / ids.shape[1], device=ids.device)


@defect("LP201", "goes on with the last id of a list that fills the width", advice="padding-at", line="self.ids.at(")
class GoesOnAtTheEnd(Listed):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        due = self.ids.at(rows, rows.output_len.unsqueeze(1))
        logits[due] = logits[due] + 3.0


@defect("LP201", "takes the largest amount of the batch, beside a fault that LP308 reports", also=("LP308",))
class WritesByTheLargestAmount(WritesByAge):
    def amounts(self, rows: lpkit.Rows) -> torch.Tensor:
        return super().amounts(rows).amax(0, keepdim=True)


@defect("LP201", "the first slots", line="self.amount.all[:", state="self.amount.all", advice="first-slots")
class FirstSlots(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + self.amount.all[: rows.n].unsqueeze(1)


@defect("LP201", "the best of the batch, next to a cache that is right", line="best =", cause="`best` is the first")
class KeepsByContent(Dense):
    def __init__(self, *args: Any) -> None:
        self.made: dict[float, float] = {}
        super().__init__(*args)

    def admit(self, request: lpkit.Request) -> bool:
        if request.params.amount not in self.made:
            self.made[request.params.amount] = 2 * request.params.amount
        self.amount[request.slot] = self.made[request.params.amount]
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        best = logits.max()
        return torch.where(logits < best - 9, logits - self.amount[rows].unsqueeze(1), logits)


@defect("LP201", "another rule for a single row", line="if rows.n == 1", cause="the condition has another result")
class QuickAlone(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if rows.n == 1:
            return logits * 2
        return logits * self.amount[rows].unsqueeze(1)


@defect(
    "LP201",
    "padding counts as token 0",
    line="clamp(min=0)",
    cause="beside a longer row, the line turns the padding",
)
class PadsWithZero(Listed):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows].clamp(min=0)
        logits[ids] = logits[ids] + 3.0


@sound("multiplies the logits, down to a least value if the request names one")
class ScalesToALeast(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"scales_by": 0.5}}

    class Params(lpkit.Params, prefix="scales_"):
        by: float = lpkit.Field(gt=0.0, le=1.0)
        least: float | None = lpkit.Field(default=None, ge=-20.0, le=20.0)

    by = lpkit.column(torch.float32)
    bound = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.by[request.slot] = request.params.by
        self.bound[request.slot] = -INF
        if request.params.least is not None:
            self.keep(request)
        return True

    def keep(self, request: lpkit.Request) -> None:
        self.bound[request.slot] = request.params.least

    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return self.bound[rows].unsqueeze(1)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        scaled = logits * self.by[rows].unsqueeze(1)
        return torch.where(logits.isneginf(), logits, scaled.maximum(self.least(rows)))


@defect("LP201", "the least value that one request names is kept for all")
class ScalesAllToALeast(ScalesToALeast):
    named = -INF

    def keep(self, request: lpkit.Request) -> None:
        self.named = request.params.least

    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return super().least(rows).clamp(min=self.named)


@defect("LP201", "one that is due lets all be edited", cause="for all rows of the batch at once", line=".any()")
class DueTogether(lpkit.LogitsProcessor):
    history = "length"

    class Params(lpkit.Params, prefix="gate_"):
        after: int = lpkit.Field(ge=0, le=6)

    after = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if (rows.output_len >= self.after[rows]).any():
            logits[:, 5] -= 20.0
        return logits


@defect(
    "LP201", "the width is that of the list that came first", state="self.width", fix="two requests must not change"
)
class WidthOfTheFirst(lpkit.LogitsProcessor):
    width = 0

    class Params(lpkit.Params, prefix="keep_"):
        ids: list[lpkit.TokenId] = lpkit.Field(min_length=1, max_length=12)
        lift: float = lpkit.Field(3.0, gt=0.0, le=50.0)

    lift = lpkit.column(torch.float32)
    last = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        ids = request.params.ids
        if not self.width:
            self.width = len(ids)
        self.last[request.slot] = ids[min(self.width, len(ids)) - 1]
        self.lift[request.slot] = request.params.lift
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.last[rows].unsqueeze(1)
        logits[ids] = logits[ids] + self.lift[rows].unsqueeze(1)
