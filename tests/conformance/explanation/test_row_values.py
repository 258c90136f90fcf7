"""The first line at which a request parts from its solo run, and the name of what it reads there."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lpkit
import pytest
import torch
from lpkit import v1, v2
from lpkit_conformance.testing import compute_check
from zoo.bases import Boost, Dense, Simple
from zoo.correct.v1 import V1Base
from zoo.correct.v2 import V2Base

UNKNOWN = torch.tensor([math.nan])
"""A table that stays as it is, although NaN is not equal to itself."""

Edit = Callable[[list[int], torch.Tensor], torch.Tensor]


class BestOfTheBatch(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        best = logits.max()  # at fault
        return torch.where(logits < best - 9, logits - self.amount[rows].unsqueeze(1), logits)


class KeepsByContent(BestOfTheBatch):
    """Its cache is right."""

    def __init__(self, *args: Any) -> None:
        self.made: dict[float, float] = {}
        super().__init__(*args)

    def admit(self, request: lpkit.Request) -> bool:
        if request.params.amount not in self.made:
            self.made[request.params.amount] = 2 * request.params.amount
        self.amount[request.slot] = self.made[request.params.amount]
        return True


class PadsWithZero(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="dense_"):
        amount: list[lpkit.TokenId] = lpkit.Field(min_length=1)

    amount = lpkit.ragged(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = self.amount[rows].clamp(min=0)  # at fault
        raised = torch.zeros_like(logits).scatter_(1, ids, 3.0)
        return logits + raised


class RowForSlot(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own = torch.zeros(self.max_num_reqs)

    def admit(self, request: lpkit.Request) -> bool:
        self.own[request.slot] = request.params.amount
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits * (1 + self.own[rows.index].unsqueeze(1))  # at fault


class KeyOfTheSign(KeepsByContent):
    def admit(self, request: lpkit.Request) -> bool:
        key = math.copysign(1, request.params.amount)  # at fault
        if key not in self.made:
            self.made[key] = request.params.amount
        self.amount[request.slot] = self.made[key]
        return True

    process = Dense.process


class QuickAlone(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if rows.n == 1:  # at fault
            return logits * 2
        return logits * self.amount[rows].unsqueeze(1)


class BuiltForArrivals(v1.LogitsProcessor):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.amounts: dict[int, float] = {}
        self.index = torch.zeros(0, dtype=torch.int64)
        self.by = torch.zeros(0)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, update: v1.BatchUpdate | None) -> None:
        v1.process_dict_updates(self.amounts, update, lambda params, *_: (params.extra_args or {}).get("ad_amount"))
        if update and update.added:  # at fault
            self.index = torch.tensor([*self.amounts], dtype=torch.int64)
            self.by = torch.tensor([*self.amounts.values()])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        inside = self.index < len(logits)
        logits[self.index[inside], 5] += self.by[inside]
        return logits


class StaleIndex(BuiltForArrivals):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits[self.index, 5] += 1.5
        return logits


class OneMaskForAll(BuiltForArrivals):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.mask = torch.zeros(vllm_config.model_config.get_vocab_size(), dtype=torch.bool)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.amounts.items():
            self.mask[int(100 * amount) % 64] = True  # at fault
            logits[row] -= amount * self.mask
        return logits


class ClearsItsMask(OneMaskForAll):
    """Its mask is right, its amount is that of the first row."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.amounts.items():
            self.mask[7] = True
            by = min([*self.amounts.values()]) * self.mask  # at fault
            logits[row] -= by + amount
            self.mask.zero_()
        return logits


class ListOfTheCache(Dense):
    @functools.lru_cache(maxsize=4)  # noqa: B019
    def base(self, kind: str) -> list[float]:
        return [0.0]

    def admit(self, request: lpkit.Request) -> bool:
        amounts = self.base("sum")
        amounts.append(request.params.amount)  # at fault
        self.amount[request.slot] = sum(amounts)
        return True


class StagesOne(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.pending: int | None = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        used = super().add_request(req_idx, params)
        self.pending = req_idx  # at fault
        return used

    def apply_staged_writes(self) -> None:
        if self.pending is not None:
            self.on_device[self.pending] = self.values[self.pending]
            self.pending = None


class KeepsOnTheHost(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        if self.read(params) is None:
            return False  # at fault
        self.values[req_idx] = self.read(params)
        return True


class RowsOfACount(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.kept: torch.Tensor | None = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.kept = None
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if self.kept is None or len(self.kept) != len(logits):
            self.kept = self.per_row(ctx)  # at fault
        logits[:, 5] += self.kept
        return logits


@functools.cache  # at fault
def seen_with(amount: float) -> Edit:
    seen: set[int] = set()

    def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        seen.update(output_ids)
        logits[sorted(seen)] -= amount
        return logits

    return rule


class OneListForAll(Simple):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.words: list[int] = []

    def make(self, amount: float, params: Any) -> Edit:
        words = self.words  # at fault

        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            words.extend(output_ids[-1:])
            logits[sorted({*words})] += amount
            return logits

        return rule


class SharedByCache(Simple):
    def make(self, amount: float, params: Any) -> Edit:
        return seen_with(amount)


class SharedByDefault(Simple):
    def make(self, amount: float, params: Any) -> Edit:
        return lambda output_ids, logits: self.lowered(amount, output_ids, logits)

    def lowered(self, amount: float, ids: list[int], logits: Any, seen: Any = set()) -> Any:  # noqa: B006  # at fault
        seen.update(ids)
        logits[sorted(seen)] -= amount
        return logits


class DrawsPerCall(Simple):
    def make(self, amount: float, params: Any) -> Edit:
        generator = torch.Generator().manual_seed(7)

        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits += amount * torch.rand(len(logits), generator=generator)  # at fault
            return logits

        return rule


class Hurries(Simple):
    def make(self, amount: float, params: Any) -> Edit:
        started = time.perf_counter()  # at fault

        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[int(started * 1e6) % 64] += amount
            return logits

        return rule


class BySpread(Dense):
    stage = "sampling"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        score = (logits - logits.mean(-1, keepdim=True)) / logits.std(-1, keepdim=True)  # at fault
        least = score.amax(-1, keepdim=True) - self.amount[rows].abs().unsqueeze(1)
        return logits.masked_fill(~(score >= least), -math.inf)


class DefaultCounts(Simple):
    def make(self, amount: float, params: Any) -> Any:
        def rule(output_ids: list[int], logits: torch.Tensor, window: int = 4) -> torch.Tensor:  # at fault
            logits[output_ids[-window:]] -= amount
            return logits

        return rule


class LowersPadding(lpkit.LogitsProcessor):
    history = "tokens"
    Params, amount, admit = Dense.Params, lpkit.column(torch.float32), Dense.admit

    def known(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.tokens.clamp(min=0)  # at fault

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.known(rows)
        logits[ids] = logits[ids] - self.amount[rows].unsqueeze(1)


class BySizeOfTheEngine(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        share = self.amount[rows] / self.max_num_reqs  # at fault
        return logits * share.unsqueeze(1)


class CountsInAKeyword(Simple):
    def make(self, amount: float, params: Any) -> Any:
        return functools.partial(counted, amount=amount)


NOTHING: dict[int, None] = {}


def counted(ids: list[int], logits: torch.Tensor, *, amount: float, seen: Any = NOTHING) -> torch.Tensor:  # at fault
    seen.update(dict.fromkeys(ids[-1:]))
    logits[[*seen]] -= amount
    return logits


class BindsLate(V1Base):
    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        for row, params, _, _ in () if batch_update is None else batch_update.added:
            self.rows.pop(row, None)
            if self.read(params) is None:
                continue
            bias = self.read(params)

            def raised(logits: torch.Tensor) -> torch.Tensor:  # at fault
                return logits + bias  # noqa: B023

            self.rows[row] = raised
        if batch_update is not None:
            v1.process_dict_updates(self.rows, v1.BatchUpdate(batch_update.batch_size, [], [], []), self.enter)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, raised in self.rows.items():
            logits[row, 5] = raised(logits[row, 5])
        return logits


class KeepsOneWrite(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.write: Any = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        bias = self.read(params)
        self.write = req_idx, bias or 0.0  # at fault
        return bias is not None

    def apply_staged_writes(self) -> None:
        write, self.write = self.write, None
        if write is not None:
            self.on_device[write[0]] = write[1]


class StagesUsers(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.staged: dict[int, float] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        if self.read(params) is None:
            return False  # at fault
        self.staged[req_idx] = self.read(params)
        return True

    def apply_staged_writes(self) -> None:
        for slot, bias in self.staged.items():
            self.on_device[slot] = bias
        self.staged.clear()


class OneLength(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.states = req_states

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        length = self.states.total_len.gpu[ctx.expanded_idx_mapping.long()]  # at fault
        return logits.scatter_add_(1, (3 + length % 12).long().unsqueeze(1), self.per_row(ctx).unsqueeze(1))


class FirstSlots(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + self.amount.all[: rows.n].unsqueeze(1)  # at fault


class ByRowNumber(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        share = self.amount[rows] + rows.index  # at fault
        return torch.where(logits > 9, logits + share.unsqueeze(1), logits)


class SeenAtTheTop(Simple):
    def make(self, amount: float, params: Any) -> Edit:
        return _Once(amount)


class _Once:
    def __init__(self, amount: float) -> None:
        self.amount, self.met = amount, False

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if not self.met:
            logits[5] += 4 * self.amount
            if int(logits.argmax()) == 5:
                self.met = True  # at fault
        return logits


class CountsInAColumn(Dense):
    count = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        early = (self.count[rows] < 3).unsqueeze(1)
        self.count.all.index_add_(0, rows.slots, torch.ones_like(rows.slots))  # at fault
        return torch.where(early, logits + self.amount[rows].unsqueeze(1), logits)


class ListsByToken(Simple):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lists: dict[int, float] = {}

    def make(self, amount: float, params: Any) -> Edit:
        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[5] += self.of(output_ids[-1] if output_ids else 0, amount)
            return logits

        return rule

    def of(self, token: int, amount: float) -> float:
        kept = self.lists.get(token)  # at fault
        if kept is None:
            kept = self.lists[token] = 2 * amount
        return kept


class _Tally:
    def __init__(self) -> None:
        self.count = 0


class FromAPool(V1Base):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.free: list[_Tally] = []
        self.bias: dict[int, float] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if self.read(params) is None:
            return None
        tally = self.free.pop() if self.free else _Tally()
        tally.outputs, tally.bias = outputs, self.read(params)  # type: ignore[attr-defined]
        return tally  # at fault

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        for row in () if batch_update is None else [*batch_update.removed, *(item[0] for item in batch_update.added)]:
            self.free += [self.rows.pop(row)] if row in self.rows else []
        v1.process_dict_updates(self.rows, batch_update, self.enter)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, tally in self.rows.items():
            tally.count = max(tally.count, len(tally.outputs))
            logits[row, 5] += tally.bias * tally.count
        return logits


class KeepsLengths(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.states = req_states

    @functools.cached_property
    def lengths(self) -> torch.Tensor:
        return self.states.prompt_len.gpu.long()  # at fault

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        logits[:, 5] += self.per_row(ctx) * (1 + self.lengths[slots] % 3)
        return logits


class StoredTokens(KeepsLengths):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        last = self.states.all_token_ids.gpu[ctx.expanded_idx_mapping.long(), ctx.pos.long()]  # at fault
        logits.scatter_add_(1, last.long().clamp(min=0).unsqueeze(1), self.per_row(ctx).unsqueeze(1))
        return logits


class TakesTheNext(Simple):
    def make(self, amount: float, params: Any) -> Edit:
        steps = iter(range(10**6))

        def rule(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            number = next(steps)  # at fault
            logits[number % 40] += amount
            return logits

        return rule


@pytest.mark.parametrize(
    ("cls", "code", "state", "cause"),
    [
        (FromAPool, "LP202", "self.rows[0].count", "`self.rows[0].count` is"),
        (KeepsLengths, "LP201", "self.lengths", "`self.lengths` gives the row another value"),
        (StoredTokens, "LP804", "last", "the row is right if `all_token_ids` holds the drafts"),
        (TakesTheNext, "LP303", "steps", "`"),
        (BindsLate, "LP201", "bias", "`bias` is"),
        (KeepsOneWrite, "LP201", "self.write", "the row is right if requests enter in steps of their own"),
        (StagesUsers, "LP202", "self.on_device[7]", "`self.on_device[7]` is 1.5"),
        (OneLength, "LP804", "length", "the row depends on `total_len`"),
        (FirstSlots, "LP201", "self.amount.all", "`self.amount.all` has a value for each slot"),
        (ByRowNumber, "LP201", "rows.index", "`share` is the first value of the row"),
        (SeenAtTheTop, "LP303", "self.met", "`apply` changes `self.met`"),
        (CountsInAColumn, "LP303", "self.count", "`apply` changes `self.count`"),
        (ListsByToken, "LP201", "self.lists", "the line asks `self.lists`"),
        (BestOfTheBatch, "LP201", "", "`best` is the first value of the row"),
        (KeepsByContent, "LP201", "", "`best` is the first value of the row"),
        (PadsWithZero, "LP201", "", "beside a longer row, the line makes ids of the padding"),
        (RowForSlot, "LP201", "self.own", "`self.own` is written by slot"),
        (KeyOfTheSign, "LP201", "self.made", "`self.made` takes something from one request"),
        (QuickAlone, "LP201", "", "the condition is answered otherwise"),
        (BuiltForArrivals, "LP204", "self.index", "`self.index` and `self.by` are out of step"),
        (StaleIndex, "LP204", "self.index", "the values of `self.index` are from before the batch"),
        (OneMaskForAll, "LP201", "self.mask", "`self.mask` is not what it is when the request is alone"),
        (ClearsItsMask, "LP201", "self.amounts", "`by`, made of `self.amounts`, is the first value"),
        (ListOfTheCache, "LP201", "ListOfTheCache.base", "`ListOfTheCache.base` takes something from one request"),
        (StagesOne, "LP201", "self.pending", "`self.pending` is"),
        (KeepsOnTheHost, "LP202", "self.values[7]", "`self.values[7]` is"),
        (RowsOfACount, "LP302", "self.kept", ""),
        (OneListForAll, "LP201", "words", "other requests change `words`, too"),
        (SharedByCache, "LP108", "seen_with", ""),
        (SharedByDefault, "LP108", "seen", "`seen`, a default value of `SharedByDefault.lowered`"),
        (DrawsPerCall, "LP303", "generator", "`apply` changes `generator`"),
        (Hurries, "LP601", "started", ""),
        (BySpread, "LP307", "", ""),
        (LowersPadding, "LP214", "", "beside a longer row, the line makes ids of the padding"),
        (BySizeOfTheEngine, "LP201", "", "`share` is the first value of the row"),
        (CountsInAKeyword, "LP201", "seen", "`seen` is not what it is when the request is alone"),
        (DefaultCounts, "LP109", "", "the callable is given token ids for its logits"),
    ],
)
def test_a_finding_names_the_line_and_the_state_at_fault(cls: type, code: str, state: str, cause: str) -> None:
    amount: Any = [4, 6, 9] if cls is PadsWithZero else 1.5
    raw = issubclass(cls, V1Base | V2Base)
    key = "dense_amount" if issubclass(cls, lpkit.LogitsProcessor) else "bias" if raw else "ad_amount"
    host = "v2" if issubclass(cls, V2Base | FirstSlots) else "v1"
    finding = compute_check(code, cls, host=host, case={"extra_args": {key: amount}}).finding
    assert finding is not None
    assert (finding.state, finding.cause[: len(cause)]) == (state, cause)
    file, _, line = finding.location.rpartition(":")
    assert file == __file__
    assert Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1].endswith("# at fault")
