"""Defects that LP201 must catch, on V1: rows that follow outputs, limits or shared lists."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import VOCAB, tokens
from zoo.correct.v1 import SWAP, V1Base
from zoo.correct.v1_history import History
from zoo.registry import defect, sound


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


@defect("LP201", "lists with the same digits share their weights")
class ByDigits(Ranked):
    def key(self, ids: list[int]) -> Any:
        return "".join(map(str, ids))


class RankedPairs(Ranked):
    """Raises the ids of lists in a list, the first of each most; the sound version."""

    CASE = {"extra_args": {"ranked": [[5, 9], [11, 4]]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        lists = (params.extra_args or {}).get("ranked")
        return None if lists is None else [item for pair in lists for item in cls.pair(pair)]

    @staticmethod
    def pair(given: Any) -> list[int]:
        if not isinstance(given, list) or not all(type(item) is int and 0 <= item < VOCAB for item in given):
            raise ValueError("ranked must be lists of token ids")
        return given


sound("keeps what it makes of lists in a list, in their order")(RankedPairs)


@defect("LP201", "lists that hold the same ids in another order share their weights")
class ByPairsOfIds(RankedPairs):
    def key(self, ids: list[int]) -> Any:
        return tuple(frozenset(ids[at : at + 2]) for at in range(0, len(ids), 2))


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


PRESETS = {"plain": {7: -1.0}, "terse": {9: 2.0}}


@defect(
    "LP201",
    "a request's own values go into a preset, and two instances of one process differ by it",
    also=("LP103",),
    line="merged = PRESETS[",
)
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


@defect(
    "LP201",
    "ends each reply with the list of the request that came first, shortly before `max_tokens`",
    also=("LP104",),
)
class ClosesWithTheFirst(ClosesAtTheEnd):
    def closing(self, own: list[int]) -> list[int]:
        return self.rows[min(self.rows)][0]


@defect("LP201", "reads a loop's variable late", line="def raised", state="bias", cause="r4's `bias`", also=("LP109",))
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


@defect("LP201", "the least amount of the batch, next to a mask that is right", line="by = min(", advice="reduces")
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


@sound("a table by row that grows with the batch")
class Growing(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.amounts = torch.zeros(1)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row, params, *_ in batch_update.added:
            self.put(row, self.read(params))
        for row in batch_update.removed:
            self.put(row, None)
        for source, target, kind in batch_update.moved:
            last = max(source, target)
            self.put(last, self.amounts[last].item() if last < len(self.amounts) else None)
            one, other = self.amounts[source].item(), self.amounts[target].item()
            self.put(target, one)
            self.put(source, other if kind is SWAP else None)

    def put(self, row: int, amount: float | None) -> None:
        if row >= len(self.amounts):
            self.amounts = self.grown(2 * row)
        self.amounts[row] = amount or 0.0

    def grown(self, size: int) -> torch.Tensor:
        return torch.cat([self.amounts, torch.zeros(size - len(self.amounts))])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        some = min(len(logits), len(self.amounts))
        logits[:some, :9] += self.amounts[:some, None].to(self.device, non_blocking=True)
        return logits


@defect(
    "LP201",
    "what the table holds is lost when it grows",
    line="self.amounts = self.grown(",
    cause="replaces `self.amounts`",
)
class LostWhenItGrows(Growing):
    def grown(self, size: int) -> torch.Tensor:
        return torch.zeros(size)


@defect("LP201", "waits until the shortest request is due", line="if shortest <", advice="ended")
class WaitsForTheShortest(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        shortest = min((len(outputs) for _, outputs in self.rows.values()), default=0)
        if shortest < 2:
            return logits
        for row, (weight, outputs) in self.rows.items():
            logits[row, 5] -= weight * len(outputs)
        return logits


@sound("lowers its token further once a sequence of its class was written")
class AfterItsSequence(History):
    END: ClassVar[list[int]] = [217, 218, 219]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            logits[row, 5] -= weight * (2 if self.ended(outputs) else 1)
        return logits

    def ended(self, outputs: list[int]) -> bool:
        return outputs[-3:] == self.END


@defect("LP201", "is switched over for all requests once one of them has written a sequence", state="self.over")
class OverForAll(AfterItsSequence):
    over = False

    def ended(self, outputs: list[int]) -> bool:
        if outputs[-3:] == self.END:
            self.over = True
        return self.over


@defect("LP201", "is switched over for all requests once one of them has written a token", state="self.over")
class OverForAllAtAToken(OverForAll):
    def ended(self, outputs: list[int]) -> bool:
        if outputs and outputs[-1] == 300:
            self.over = True
        return self.over


@sound("raises a token between two marks, with no branch that depends on them")
class BetweenMarks(History):
    OPENS, CLOSES = 301, 302

    def opened(self, outputs: list[int], inside: bool) -> bool:
        for token in outputs:
            inside = token == self.OPENS or (inside and token != self.CLOSES)
        return inside

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            logits[row, 5] += weight * (1 + self.opened(outputs, False))
        return logits


@defect("LP201", "keeps for all requests if one is between two marks", state="self.inside")
class BetweenAnyonesMarks(BetweenMarks):
    inside = False

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            self.inside = self.opened(outputs[-1:], self.inside)
            logits[row, 5] += weight * (1 + self.inside)
        return logits
