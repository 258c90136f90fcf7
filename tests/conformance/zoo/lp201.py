"""Defects that LP201 must catch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import lpkit
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import INF, REPETITION, number, token, tokens
from zoo.bases import AtChanges, Boost, ByLength, Dense, Relative, Simple
from zoo.correct.adapter import AdapterBase
from zoo.correct.portable import PortableRepetition
from zoo.correct.portable_odd import Chance
from zoo.correct.v1 import Bias, DenseMinP, V1Base
from zoo.correct.v1_history import History
from zoo.lp308 import WritesByAge
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


@defect("LP201", "draws its tokens by the number of the slot", line="mix(rows.slots", advice="number")
class DrawsBySlot(Dense):
    history = "length"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        seeds = lpkit.rng.mix(rows.slots, rows.total_len).unsqueeze(1)
        chosen = lpkit.rng.uniform(seeds, torch.arange(logits.shape[1], device=logits.device)) < 0.5
        return logits + chosen * self.amount[rows].unsqueeze(1)


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


@defect("LP201", "a probability is taken over the requests", fix="within each row", line="softmax")
class SoftmaxOverRows(Several):
    def edit(self, logits: torch.Tensor, rows: torch.Tensor, where: torch.Tensor, bias: torch.Tensor) -> None:
        chosen = logits[rows]
        likely = torch.softmax(chosen, dim=0)
        logits[rows] = chosen - bias.unsqueeze(1) * likely


@defect("LP201", "a mean is divided by the longest list of the batch", fix="the list's own length", line="/ width")
class MeanOfTheLongest(V1Base):
    CASE = {"extra_args": {"ids": [5, 9, 11]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return tokens(params, "ids")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        width = max(map(len, self.rows.values()), default=1)
        for row, ids in self.rows.items():
            mean = logits[row, ids].sum() / width
            logits[row, ids] -= mean.abs() + 1
        return logits


@defect("LP201", "one greedy request switches it off for the others")
class OffForGreedy(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.greedy: list[Any] = []

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for _, params, _, outputs in batch_update.added if batch_update else ():
            if params.temperature == 0 and not outputs:
                self.greedy.append(outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        # For the request's first two tokens only, so that nobody meets it by the way.
        if not any(len(outputs) < 2 for outputs in self.greedy):
            for row, bias in self.rows.items():
                logits[row, 5] += bias
        return logits


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


class Ranked(V1Base):
    """Raises the ids of a list, the first most; the sound version. It keeps the lists that it has read."""

    CASE = {"extra_args": {"ranked": [5, 9, 11]}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made: dict[Any, list[int]] = {}

    @classmethod
    def read(cls, params: Any) -> Any:
        return tokens(params, "ranked")

    def key(self, ids: list[int]) -> Any:
        return tuple(ids)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = self.read(params)
        if len(self.made) >= 64:
            self.made.clear()
        return None if ids is None else self.made.setdefault(self.key(ids), ids)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ids in self.rows.items():
            for rank, where in enumerate(ids):
                logits[row, where] += 3.0 / (1 + rank)
        return logits


sound("keeps what it makes of a list, in its order")(Ranked)


@defect("LP201", "lists with the same ids in another order share their weights")
class ByIds(Ranked):
    def key(self, ids: list[int]) -> Any:
        return frozenset(ids)


@defect("LP201", "lists of equal length and sum share their weights")
class BySum(Ranked):
    def key(self, ids: list[int]) -> Any:
        return len(ids), sum(ids)


@defect("LP201", "lists with the same ends share their weights", line="self.made.setdefault(")
class ByEnds(Ranked):
    def key(self, ids: list[int]) -> Any:
        return ids[0], ids[-1]


@defect("LP201", "lists of equal length that begin alike share their weights")
class ByBeginning(Ranked):
    def key(self, ids: list[int]) -> Any:
        return len(ids), *ids[:2]


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


@defect(
    "LP201",
    "the way of the last request is that of the batch",
    case={"extra_args": {"way": "up"}},
    others=[{"extra_args": {"way": "down"}}],
)
class LastWay(V1Base):
    way = ""

    @classmethod
    def read(cls, params: Any) -> Any:
        way = (params.extra_args or {}).get("way")
        if way not in (None, "up", "down"):
            raise ValueError("way must be up or down")
        return way

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        way = self.read(params)
        self.way = way or self.way
        return way

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row, 5] += 2.0 if self.way == "up" else -2.0
        return logits


@defect("LP201", "the last request's limit", case={"extra_args": {"bias": 2.5}, "max_tokens": 40})
class LastMaxTokens(V1Base):
    longest = 1

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        if bias is None:
            return None
        self.longest = params.max_tokens
        return bias, outputs

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, outputs) in self.rows.items():
            logits[row, 5] += bias * len(outputs) / self.longest
        return logits


@sound("each request's own limit", case={"extra_args": {"bias": 2.5}, "max_tokens": 40})
class OwnMaxTokens(LastMaxTokens):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else (bias / params.max_tokens, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, outputs) in self.rows.items():
            logits[row, 5] += bias * len(outputs)
        return logits


@sound("a weight for each token that its limit allows", case={"extra_args": {"bias": 2.5}, "max_tokens": 24})
class WeighsUpToItsLimit(LastMaxTokens):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else ([bias * n / 10 for n in range(params.max_tokens)], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weights, outputs) in self.rows.items():
            logits[row, 5] += weights[len(outputs)]
        return logits


@defect("LP201", "the last request's least length, which only servers set", line="self.least = params.min_tokens")
class LastMinTokens(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}
    least = 0

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        if bias is None:
            return None
        self.least = params.min_tokens
        return bias, params.min_tokens

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, _) in self.rows.items():
            logits[row, 5] += bias + self.least
        return logits


@sound("each request's own least length")
class OwnMinTokens(LastMinTokens):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, least) in self.rows.items():
            logits[row, 5] += bias + least
        return logits


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


@defect("LP201", "keeps one staged value of those that come in a step", line="self.staged =", advice="one-newcomer")
class LastStaged(Boost):
    staged: tuple[int, float] | None = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        amount = self.read(params)
        self.staged = (req_idx, amount or 0.0)
        return amount is not None

    def apply_staged_writes(self) -> None:
        if self.staged is not None:
            self.on_device[self.staged[0]] = self.staged[1]
            self.staged = None


@defect("LP201", "sends one of the values that come in a step", advice="one-newcomer")
class SendsOne(Boost):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.new: list[int] = []

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.new.append(req_idx)
        return super().add_request(req_idx, params)

    def apply_staged_writes(self) -> None:
        for slot in self.new[:1]:
            self.on_device[slot] = self.values[slot]
        self.new.clear()


@defect("LP201", "numbers its draws by the row and the size of the engine", advice="size-max", line="self.max_num_reqs")
class DrawsByRow(Dense):
    history = "length"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        number = rows.total_len * self.max_num_reqs + rows.index
        return logits * (1 + self.amount[rows] * (number % 11) / 20).unsqueeze(1)


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
        self.index = torch.tensor(list(self.rows), dtype=torch.int64)
        self.by = torch.tensor([bias for _, bias in self.rows.values()])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            top = logits[self.index].amax()
            logits[self.index, 5] += self.by * top / 10
        return logits


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
    line="self.seen.update(",
    state="Meter.seen",
    cause="takes something from one request to another",
    also=("LP108",),
)
class NotesInTheClass(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        return Meter(amount)


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


PRESETS = {"plain": {7: -1.0}, "terse": {9: 2.0}}


@defect("LP201", "a request's own values go into a preset, and two instances of one process differ by it")
class AddsToPreset(V1Base):
    CASE = {"extra_args": {"style": "plain", "further": {"5": 2.0}}}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        args = params.extra_args or {}
        further = args.get("further", {})
        named = isinstance(further, dict) and all(str(key).isdigit() for key in further)
        if args.get("style", "plain") not in (*PRESETS,) or not named:
            raise ValueError("style must be that of a preset, and further must map ids to numbers")
        [float(value) for value in further.values()]

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        args = params.extra_args or {}
        if "style" not in args:
            return None
        merged = PRESETS[args["style"]]
        merged.update({int(key): float(value) for key, value in args.get("further", {}).items()})
        return dict(merged)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, values in self.rows.items():
            for token_id, value in values.items():
                if token_id < logits.shape[1]:
                    logits[row, token_id] += value
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


@defect("LP201", "reads all prompts as long as the longest", advice="outside", line="all_token_ids", name="ReadsOn")
class V2ReadsOn(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        width = int(self.req_states.prompt_len.np[ctx.idx_mapping_np].max())
        ids = self.req_states.all_token_ids.gpu[slots, :width].long()
        return logits + torch.zeros_like(logits).scatter_(1, ids, 1.0) * self.per_row(ctx).unsqueeze(1)


class Weights:
    """The amount of a request, as an object."""

    def __init__(self) -> None:
        self.amount = 0.0

    def taken(self, amount: float) -> Weights:
        self.amount = amount
        return self


@defect("LP201", "all callables are bound to one object", advice="one-object", cause="`self.weights`: with a copy")
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


@defect("LP201", "rows keep one list, filled again for each", advice="one-object", cause="`self.both`: with a copy")
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


@defect("LP201", "keeps the lengths of the first step", line="self.kept = self.req_states", name="FirstLengths")
class V2FirstLengths(ByLength):
    kept: torch.Tensor | None = None

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        if self.kept is None:
            self.kept = self.req_states.prompt_len.gpu

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        assert self.kept is not None
        return ctx.pos + 1 - self.kept[ctx.expanded_idx_mapping.long()]


@defect("LP201", "takes the largest amount of the batch, beside a fault that LP308 reports", also=("LP308",))
class WritesByTheLargestAmount(WritesByAge):
    def amounts(self, rows: lpkit.Rows) -> torch.Tensor:
        return super().amounts(rows).amax(0, keepdim=True)


class ClosesAtTheEnd(History):
    """The last tokens of a reply, up to ``max_tokens``, are a given list; the sound version. No case says how many."""

    CASE = {"extra_args": {"closing": [7, 8, 9]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return tokens(params, "closing")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        closing = self.read(params)
        return closing and (closing, params.max_tokens - len(closing), outputs)

    def closing(self, own: list[int]) -> list[int]:
        return own

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (closing, start, outputs) in self.rows.items():
            if len(outputs) >= start:
                logits[row, self.closing(closing)[(len(outputs) - start) % len(closing)]] += 50.0
        return logits


@sound("ends each reply with its list, shortly before `max_tokens`")
class ClosesWithItsOwn(ClosesAtTheEnd):
    pass


@defect("LP201", "ends each reply with the list of the request that came first, shortly before `max_tokens`")
class ClosesWithTheFirst(ClosesAtTheEnd):
    def closing(self, own: list[int]) -> list[int]:
        return self.rows[min(self.rows)][0]


@defect(
    "LP201", "keeps lengths", line="prompt_len.gpu.long()", state="self.lengths", cause="gives the row another value"
)
class KeepsLengths(Boost):
    @functools.cached_property
    def lengths(self) -> torch.Tensor:
        return self.req_states.prompt_len.gpu.long()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        logits[:, 5] += self.per_row(ctx) * (1 + self.lengths[slots] % 3)
        return logits


@defect("LP201", "reads a loop's variable late", line="def raised", state="bias", cause="`bias` is")
class BindsLate(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        for row, params, _, _ in () if batch_update is None else batch_update.added:
            self.rows.pop(row, None)
            if self.read(params) is None:
                continue
            bias = self.read(params)

            def raised(logits: torch.Tensor) -> torch.Tensor:
                return logits + bias  # noqa: B023

            self.rows[row] = raised
        if batch_update is not None:
            process_dict_updates(self.rows, BatchUpdate(batch_update.batch_size, [], [], []), self.enter)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, raised in self.rows.items():
            logits[row, 5] = raised(logits[row, 5])
        return logits


@defect("LP201", "the first slots", line="self.amount.all[:", state="self.amount.all", advice="first-slots")
class FirstSlots(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + self.amount.all[: rows.n].unsqueeze(1)


@defect("LP201", "amounts by token", line="self.lists.get(", state="self.lists", cause="`self.lists` takes something")
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


@defect("LP201", "the least amount of the batch, next to a mask that is right", line="by = min(", state="self.rows")
class ClearsItsMask(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.mask = torch.zeros(vllm_config.model_config.get_vocab_size(), dtype=torch.bool, device=device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            self.mask[7] = True
            by = min([*self.rows.values()]) * self.mask
            logits[row] -= by + amount
            self.mask.zero_()
        return logits


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


@defect("LP201", "another rule for a single row", line="if rows.n == 1", cause="the condition is answered otherwise")
class QuickAlone(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if rows.n == 1:
            return logits * 2
        return logits * self.amount[rows].unsqueeze(1)


@defect(
    "LP201", "keeps one of the writes of a step", line="self.write = req_idx", state="self.write", advice="one-newcomer"
)
class KeepsOneWrite(Boost):
    write: Any = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        bias = self.read(params)
        self.write = req_idx, bias or 0.0
        return bias is not None

    def apply_staged_writes(self) -> None:
        write, self.write = self.write, None
        if write is not None:
            self.on_device[write[0]] = write[1]


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


@defect(
    "LP201",
    "padding counts as token 0",
    line="clamp(min=0)",
    cause="beside a longer row, the line makes ids of the padding",
)
class PadsWithZero(Listed):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows].clamp(min=0)
        logits[ids] = logits[ids] + 3.0


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
