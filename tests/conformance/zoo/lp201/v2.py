"""Defects that LP201 must catch, on V2."""

from __future__ import annotations

import functools
from typing import Any

import torch
from lpkit import v2

from zoo.bases import Boost, ByLength
from zoo.registry import defect


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


@defect("LP201", "sends one of the values that come in a step", fix="write `self.new`", line="self.new[:1]")
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


@defect("LP201", "reads all prompts as long as the longest", advice="outside", line="all_token_ids", name="ReadsOn")
class V2ReadsOn(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        width = int(self.req_states.prompt_len.np[ctx.idx_mapping_np].max())
        ids = self.req_states.all_token_ids.gpu[slots, :width].long()
        return logits + torch.zeros_like(logits).scatter_(1, ids, 1.0) * self.per_row(ctx).unsqueeze(1)


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


@defect(
    "LP201",
    "removes from the list of new slots while it goes through it",
    line="in self.new:",
    fix="write `list(self.new)`",
)
class RemovesInItsLoop(SendsOne):
    def apply_staged_writes(self) -> None:
        for slot in self.new:
            self.on_device[slot] = self.values[slot]
            self.new.remove(slot)


@defect("LP201", "all entries of the table are one memory", line=".expand(", fix="memory of its own")
class OneMemory(Boost):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table = torch.zeros(1, 2).expand(len(self.values), -1)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.table[req_idx, 0] = self.read(params) or 0.0
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits.add_(self.table[ctx.expanded_idx_mapping.long(), :1])


class Highest:
    """The highest slot in use."""

    def __init__(self) -> None:
        self.slot = 0

    def put(self, slot: int) -> None:
        self.slot = max(self.slot, slot)


@defect("LP201", "sends what lies below the highest slot", state="self.highest.slot", line="self.slot = max(")
class BelowTheHighest(Boost):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.highest = Highest()

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.highest.put(req_idx)
        return super().add_request(req_idx, params)

    def apply_staged_writes(self) -> None:
        self.on_device[: self.highest.slot] = self.values[: self.highest.slot]
