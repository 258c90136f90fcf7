"""V2 processors with one thing wrong each."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import torch
from lpkit import v2

from zoo.arguments import INF, tokens
from zoo.registry import defect
from zoo.v2_correct import V2Base, V2Bias, V2History


class Boost(V2Base):
    """Raises token 5 of the rows that ask for it; the sound version."""

    CASE = {"extra_args": {"bias": 2.0}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx)
        return logits


class ByLength(V2History):
    """Raises a token that the output's length chooses; the sound version."""

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return ctx.pos + 1 - self.req_states.prompt_len.gpu[ctx.expanded_idx_mapping.long()]

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        chosen = (3 + self.outputs(ctx) % 12).long().unsqueeze(1)
        return logits.scatter_add_(1, chosen, self.per_row(ctx).unsqueeze(1))


# -- construction and parameters -----------------------------------------------------------------------------


@defect("LP101", "one thread of work per two slots: none for an engine of one request")
class PairsOfSlots(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.pairs = self.values.view(req_states.max_num_reqs // 2, 2)


@defect("LP104", "a seed of 64 bits in a column of 32", case={"extra_args": {"pick": 21}})
class NarrowColumn(V2Base):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.picks = torch.zeros(req_states.max_num_reqs, dtype=torch.int32)

    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("pick")
        if value is not None and (type(value) is not int or not 0 <= value < 2**63):
            raise ValueError("pick must be a signed 64-bit integer")
        return value

    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        self.values[req_idx] = float(value is not None)
        self.picks[req_idx] = value or 0
        return value is not None

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        picks = self.picks.to(self.device)[ctx.expanded_idx_mapping.long()].long() % 12
        return logits.scatter_add_(1, picks.unsqueeze(1), self.per_row(ctx).unsqueeze(1))


@defect("LP104", "a table of eight ids, and nobody who counts them")
class EightAtMost(V2Bias):
    CASE = {"extra_args": {"ids": [4, 9], "by": -3.0}}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        tokens(params, "ids")


@defect("LP105", "marks the request in its extra_args as seen")
class MarksParams(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = super().add_request(req_idx, params)
        if wanted:
            params.extra_args["_slot"] = req_idx
        return wanted


@defect("LP108", "the table of values is a class attribute")
class ClassTable(Boost):
    table: ClassVar[torch.Tensor] = torch.zeros(512)

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.values = self.table[: req_states.max_num_reqs]


@defect("LP109", "reads a field that the context does not have, once a request uses it")
class MisspelledField(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.values[ctx.expanded_index_mapping]  # type: ignore[attr-defined]
        return logits


# -- bookkeeping ---------------------------------------------------------------------------------------------


@defect("LP302", "keeps the row mapping while the number of rows stays the same")
class KeepsMapping(Boost):
    mapping: torch.Tensor | None = None

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.mapping = None
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if self.mapping is None or self.mapping.shape[0] != logits.shape[0]:
            self.mapping = ctx.expanded_idx_mapping.long().clone()
        logits[:, 5] += self.on_device[self.mapping]
        return logits


@defect("LP202", "a request that declines leaves the slot's value")
class DeclineKeeps(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        if value is None:
            return False
        self.values[req_idx] = value
        return True


@defect("LP207", "takes slot 0 for no slot: it is given out last of all")
class FalsySlot(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        if not req_idx:
            return False
        return super().add_request(req_idx, params)


@defect("LP208", "slots in a byte")
class ByteSlots(Boost):
    def per_row(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.on_device[ctx.expanded_idx_mapping.to(torch.uint8).long()]


@defect("LP210", "the furthest position seen, by id(params)")
class FurthestById(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.ids: dict[int, int] = {}
        self.furthest: dict[int, int] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.ids[req_idx] = id(params)
        if id(params) not in {self.ids[slot] for slot in self.ids if slot != req_idx}:
            self.furthest.pop(id(params), None)
        return super().add_request(req_idx, params)

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        found = super().outputs(ctx).tolist()
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            key = self.ids[slot]
            found[row] = self.furthest[key] = max(found[row], self.furthest.get(key, 0))
        return torch.tensor(found, device=self.device)


@defect("LP211", "counts from prefill_len, which has the outputs of a resumed request in it")
class CountsFromPrefill(ByLength):
    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return ctx.pos + 1 - self.req_states.prefill_len.gpu[ctx.expanded_idx_mapping.long()]


class Counter(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.count = torch.zeros(req_states.max_num_reqs, dtype=torch.int64, device=self.device)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.count[req_idx] = int(self.req_states.prefill_len.np[req_idx] - self.req_states.prompt_len.np[req_idx])
        return super().add_request(req_idx, params)

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        return self.count[ctx.expanded_idx_mapping.long()]


@defect("LP303", "advances a slot's counter in apply")
class CountsApplies(Counter):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        result = super().apply(logits, ctx)
        self.count[ctx.idx_mapping.long()] += 1
        return result


@defect("LP213", "advances every counter in apply_staged_writes")
class CountsFlushes(Counter):
    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = super().add_request(req_idx, params)
        self.count[req_idx] -= 1
        return wanted

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.count += 1


@defect("LP219", "a slot given away twice in a row to requests that decline is taken for dead")
class ThirdOccupant(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.declined = [0] * req_states.max_num_reqs

    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = super().add_request(req_idx, params)
        if wanted and self.declined[req_idx] >= 2:
            self.values[req_idx] = 0.0
            self.declined[req_idx] = 0
        self.declined[req_idx] = 0 if wanted else self.declined[req_idx] + 1
        return wanted


@defect("LP214", "a prompt of more than 64 tokens is looked up in the slot that came last")
class LongPromptSlot(ByLength):
    newest = 0

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.newest = req_idx
        return super().add_request(req_idx, params)

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        prompt = self.req_states.prompt_len.gpu
        own = prompt[ctx.expanded_idx_mapping.long()]
        return ctx.pos + 1 - torch.where(own > 64, prompt[self.newest], own)


# -- the contract --------------------------------------------------------------------------------------------


@defect("LP301", "returns the rows of its own requests only")
class OwnRowsOnly(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx)
        logits[:, 5] += own
        return logits if bool((own != 0).any()) else logits[own != 0]


@defect("LP302", "normalises every row of the batch")
class Normalises(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return torch.log_softmax(super().apply(logits, ctx), -1)


@defect("LP303", "halves what it gave last time")
class Halves(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        result = super().apply(logits, ctx)
        self.on_device *= 0.5
        return result


@defect("LP304", "strides that assume a contiguous batch")
class AssumesStrides(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        rows, vocab = logits.shape
        flat = logits.as_strided((rows * vocab,), (1,))
        flat[torch.arange(rows, device=logits.device) * vocab + 5] += self.per_row(ctx)
        return logits


@defect("LP305", "clamps: what was -inf is -50 now")
class Clamps(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx).unsqueeze(1)
        return torch.where(own != 0, (logits + own / 10).clamp(min=-1e9), logits)


@defect("LP306", "a share of the row's range, which is infinite when a token is masked")
class ShareOfRange(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx).unsqueeze(1) / 100
        spread = logits.amax(1, keepdim=True) - logits.amin(1, keepdim=True)
        return torch.where(own != 0, (logits + own) / (1 + own * spread), logits)


@defect("LP307", "keeps what lies above the mean of a row")
class AboveTheMean(V2Base):
    KEY, LOW, HIGH = "floor", 0.0, 1.0
    CASE = {"extra_args": {"floor": 0.4}}

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        own = self.per_row(ctx).unsqueeze(1)
        finite = logits > -INF
        mean = torch.where(finite, logits, 0.0).sum(1, keepdim=True) / finite.sum(1, keepdim=True)
        return torch.where((own > 0) & (logits <= mean), -INF, logits)


@defect("LP308", "adds values that stayed on the host")
class HostValues(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.values[ctx.idx_mapping_np]
        return logits


# -- determinism, growth, cost -------------------------------------------------------------------------------


@defect("LP601", "draws a salt for each instance")
class Salted(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.salt = id(self.values) // 64 % 97 + next(self.made)

    made = itertools.count()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx) * (1 + self.salt / 100)
        return logits


@defect("LP602", "dropout, from the global generator", case={"extra_args": {"drop": 0.5}})
class Dropout(V2Base):
    KEY, LOW, HIGH = "drop", 0.0, 1.0

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        torch.manual_seed(7)
        noise = torch.rand(logits.shape[1], device=logits.device)
        return torch.where(noise < self.per_row(ctx).unsqueeze(1), logits - 1, logits)


@defect("LP603", "keeps the parameters of every request, to look at them later")
class KeepsParams(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        self.requests = {**getattr(self, "requests", {}), len(getattr(self, "requests", {})): params}
        return super().add_request(req_idx, params)


@defect("LP701", "one index operation per row")
class RowByRow(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, slot in enumerate(ctx.idx_mapping_np):
            logits[row, 5] += self.on_device[slot]
        return logits


@defect("LP702", "returns True for every request and adds zeros")
class AlwaysWanted(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        super().add_request(req_idx, params)
        return True


@defect("LP703", "sends a table of its constructor in every step")
class SendsItsTable(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.levels = torch.tensor([0.5, 1.0, 2.0])

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx) * self.levels.to(logits.device)[1]
        return logits


@defect("LP703", "asks the device for the mapping that is on the host already")
class MappingFromDevice(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        if any(self.values[slot] for slot in ctx.idx_mapping.tolist()):
            return super().apply(logits, ctx)
        return logits
