"""Processors on lpkit's portable base with one thing wrong each, in what they do to logits and keep of requests."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import lpkit
import torch

from zoo.arguments import INF
from zoo.portable_correct import PortableBias, PortableCopyBoost, PortableLength, PortableMinP, PortableRepetition
from zoo.registry import defect

MIN_P = {"extra_args": {"min_p": 0.2}}
REPETITION = {"extra_args": {"rep_penalty": 1.7}}


class Dense(lpkit.LogitsProcessor):
    """Adds an amount to token 5; the sound version."""

    CASE = {"extra_args": {"dense_amount": 1.5}}

    class Params(lpkit.Params, prefix="dense_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows]
        return logits


@defect("LP109", "a name that was changed in one place only")
class RenamedOnce(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amounts[rows]  # type: ignore[attr-defined]
        return logits


@defect("LP304", "a flat view of the logits, which some of a batch's rows allow")
class FlatView(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        flat = torch.arange(logits.shape[0], device=logits.device) * logits.shape[1] + 5
        logits.view(-1).index_add_(0, flat, self.amount[rows].to(logits.dtype))
        return logits


@defect("LP201", "the maximum of all rows instead of each row's", case=MIN_P)
class MaximumOfAll(PortableMinP):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax() + rows.temperature * self.log_min_p[rows].unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@defect("LP201", "keeps the argument of the request that was admitted last")
class LastAdmitted(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.last = request.params.amount
        return super().admit(request)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.last
        return logits


@defect("LP201", "rows.index instead of rows.slots")
class IndexForSlots(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount.all[rows.index]
        return logits


@defect("LP201", "keeps the tokens while their shape stays the same", case=REPETITION)
class KeepsTokens(PortableRepetition):
    seen: torch.Tensor | None = None

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        if self.seen is None or self.seen.shape != rows.tokens.shape:
            self.seen = rows.tokens.clone()
        values, penalty = logits[self.seen], self.penalty[rows].unsqueeze(1)
        logits[self.seen] = torch.where(values > 0, values / penalty, values * penalty)


@defect("LP202", "a dictionary by slot, filled with setdefault")
class SlotSetDefault(Dense):
    def __init__(self, *args: Any) -> None:
        self.by_slot: dict[int, float] = {}
        super().__init__(*args)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = self.by_slot.setdefault(request.slot, request.params.amount)
        return True


class CountsCalls(Dense):
    """A counter by slot, advanced when ``advance`` says so."""

    history = "length"

    def __init__(self, *args: Any) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)
        super().__init__(*args)

    def chosen(self, rows: lpkit.Rows) -> torch.Tensor:
        return torch.tensor([3 + self.counts[slot] % 12 for slot in rows.slots.tolist()], device=self.device)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.scatter_add_(1, self.chosen(rows).unsqueeze(1), self.amount[rows].unsqueeze(1))


@defect("LP211", "counts its own calls, from zero at each admission")
class StartsAgain(CountsCalls):
    def admit(self, request: lpkit.Request) -> bool:
        self.counts[request.slot] = 0
        self.lengths: dict[int, int] = getattr(self, "lengths", {})
        self.lengths.pop(request.slot, None)
        return super().admit(request)

    def chosen(self, rows: lpkit.Rows) -> torch.Tensor:
        for slot, length in zip(rows.slots.tolist(), rows.total_len.tolist(), strict=True):
            self.counts[slot] = length - self.lengths.setdefault(slot, length)
        return super().chosen(rows)


@defect("LP303", "counts its own calls: partial prefills count too", case={"extra_args": {"dense_amount": 1.5}})
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


@defect("LP301", "half precision when the whole batch is its own")
class HalfPrecision(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        result = super().process(logits, rows)
        return result.half() if rows.whole and rows.n > 1 else result


@defect("LP303", "remembers the last result of a row and averages")
class Averages(Dense):
    last: torch.Tensor | None = None

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        result = super().process(logits, rows)
        value = result[:1, 5].clone()
        if self.last is not None:
            result[:1, 5] = (value + self.last) / 2
        self.last = value
        return result


@defect("LP305", "writes a value instead of adding one")
class WritesValue(PortableBias):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.token[rows].unsqueeze(1)] = self.bias[rows].unsqueeze(1)


@defect("LP214", "takes padding for token 0 of the prompt: there is none where 64 tokens fill the buffer")
class PaddingIsToken(PortableCopyBoost):
    CASE = {"extra_args": {"copy_boost": 2.5}}

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        present = torch.zeros_like(logits, dtype=torch.int64)
        present.scatter_add_(1, rows.tokens.clamp(min=0), (~rows.is_output).long())
        return torch.where(present > 0, logits + self.boost[rows].unsqueeze(1), logits)


@defect("LP306", "divides by an argument that may be left out")
class DividesByNothing(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"div_amount": 1.5, "div_by": 2.0}}

    class Params(lpkit.Params, prefix="div_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)
        by: float | None = lpkit.Field(None, ge=0.5, le=50.0)

    amount = lpkit.column(torch.float32)
    by = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        self.by[request.slot] = request.params.by or 0.0
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows] * (self.by[rows] / self.by[rows])
        return logits


@defect("LP306", "the deviation of a row with masked tokens", case={"extra_args": {"sigmas": 1.5}})
class DeviationOfMasked(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        sigmas: float = lpkit.Field(ge=0.0, le=100.0)

    sigmas = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.sigmas[request.slot] = request.params.sigmas
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        scale = 1 + 0.1 * self.sigmas[rows].unsqueeze(1)
        return logits / (logits.std(-1, keepdim=True) + 0.1) * scale


@defect("LP307", "drops whatever is not clearly above the smallest", case={"extra_args": {"sigmas": 1.5}})
class ClearlyAbove(DeviationOfMasked):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        lowest = torch.where(logits > -INF, logits, INF).amin(-1, keepdim=True)
        return logits.masked_fill_(logits <= lowest, -INF)


@defect("LP308", "a table made on the CPU at construction")
class CpuTable(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table = torch.linspace(0, 1, self.vocab_size)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + self.table * self.amount[rows].unsqueeze(1)


@defect("LP403", "forgets the temperature that is still to come on V2", case=MIN_P)
class ForgetsTemperature(PortableMinP):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax(-1, keepdim=True) + self.log_min_p[rows].unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@defect("LP403", "uses the prompt at admission, which V2 does not give")
class PromptAtAdmission(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount + len(request.prompt_token_ids or ()) / 10
        return True


@defect("LP603", "remembers the amount of every request that came")
class Remembers(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        self.past = [*getattr(self, "past", []), request.params.amount]
        return super().admit(request)


@defect("LP701", "row by row")
class RowByRow(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        for row, amount in enumerate(self.amount[rows]):
            logits[row, 5] += amount
        return logits


@defect("LP703", "asks the device for the longest output", case=PortableLength.CASE)
class LongestOutput(PortableLength):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if int(rows.output_len.min()) > 10_000:
            return logits
        return super().process(logits, rows)


@defect("LP221", "token ids in a byte, made to fit")
class ByteIds(PortableBias):
    token = lpkit.column(torch.uint8)

    def admit(self, request: lpkit.Request) -> bool:
        self.bias[request.slot] = request.params.bias
        self.token[request.slot] = request.params.token % 256
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].long().unsqueeze(1)
        logits[ids] = logits[ids] + self.bias[rows].unsqueeze(1)


@defect("LP703", "names the column by a list")
class ColumnByList(Dense):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, [5]] += self.amount[rows].unsqueeze(1)
        return logits


@defect("LP804", "a scratch buffer with one row per request: drafts have more")
class ScratchRows(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scratch = torch.zeros(self.max_num_reqs, self.vocab_size, device=self.device)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        self.scratch[: rows.n].copy_(logits)
        logits.copy_(super().process(self.scratch[: rows.n], rows))
        return logits


@defect("LP504", "remembers by prompt what the first logits of a request were", case=REPETITION)
class RemembersFirst(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params, prefix="rep_"):
        penalty: float = lpkit.Field(gt=0.01, le=100.0)

    penalty = lpkit.column(torch.float32)

    def __init__(self, *args: Any) -> None:
        self.first: dict[tuple[int, ...], int] = {}
        super().__init__(*args)

    def admit(self, request: lpkit.Request) -> bool:
        self.penalty[request.slot] = request.params.penalty
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if len(self.first) > 64:
            self.first = dict(list(self.first.items())[-32:])
        for row, (length, ids) in enumerate(zip(rows.prompt_len.tolist(), rows.tokens.tolist(), strict=True)):
            outputs = [item for item in ids[length:] if item >= 0]
            key = (*ids[:length], round(float(self.penalty.all[rows.slots[row]]) * 1000))
            if not outputs:
                self.first[key] = int(logits[row].argmax())
            elif key in self.first:
                logits[row, self.first[key]] -= 1.5
        return logits
