"""Defects that LP202 must catch."""

from __future__ import annotations

from typing import Any, ClassVar

import lpkit
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.arguments import INF, number, token, tokens
from zoo.bases import AfterMarker, Boost, Clean, IfPrompted, Late, Relative
from zoo.correct.v1 import Bias, ByHand, V1Base
from zoo.correct.v2 import V2Base, V2Bias
from zoo.correct.v2_odd import UnlocksOnceWritten
from zoo.registry import defect, sound


class Forgetful(Late):
    """Does not forget a request when another request that does not use the processor takes its row."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        kept = dict(self.rows)
        super().update_state(batch_update)
        for row, params, *_ in batch_update.added if batch_update else ():
            if self.read(params) is None and row in kept:
                self.rows[row] = kept[row]


@defect("LP202", "a decline leaves the old state; acts only if a certain token is in the prompt")
class ForgetfulIfPrompted(Forgetful, IfPrompted):
    pass


@defect("LP202", "a decline leaves the old state; acts only after a marker")
class ForgetfulAfterMarker(Forgetful, AfterMarker):
    pass


@defect("LP202", "a decline leaves the old state; acts from the 100th token on")
class ForgetfulLate(Forgetful):
    FIRST = 100


@defect(
    "LP202",
    "parsed arguments are kept by the address of the output list",
    advice="by-address",
    cause="`self.known`",
    line="if id(outputs) not in",
)
class ByAddressOfList(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if id(outputs) not in self.known:
            self.known[id(outputs)] = self.read(params)
        return self.known[id(outputs)]


@defect(
    "LP202",
    "an Add without the plugin leaves the old occupant's entry, on odd rows only",
    line="if state is not None or row % 2",
)
class StaleOnOddRows(ByHand):
    def place(self, row: int, state: Any) -> None:
        if state is not None or row % 2 == 0:
            super().place(row, state)


@defect(
    "LP202",
    "an Add that is declined keeps the entry; the row was never in `removed`",
    cause="keeps the entry of the request that had the row before",
    fix="add `for index, *_ in update.added: self.rows.pop(index, None)`",
)
class StaleOnDecline(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state:
                self.rows[row] = state


@defect("LP202", "setdefault: the newcomer inherits the old arguments")
class SetDefault(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is None:
                self.rows.pop(row, None)
            else:
                self.rows.setdefault(row, state)


@defect("LP202", "after the ninth token reads the newest list of all instead of its own")
class SharedAfterNine(Relative):
    newest: list[int] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None:
            self.newest = outputs
        return state

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, _) in self.rows.items():
            logits[row, 3 + len(outputs if len(outputs) <= 9 else self.newest) % 12] += weight
        return logits


@defect(
    "LP202",
    "searches a slot's buffer to its end, where the text of an earlier request still stands",
    advice="outside",
    line="all_token_ids.gpu",
)
class BehindItsText(UnlocksOnceWritten):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        key, locked = self.table[slots].unbind(1)
        text = torch.where(
            ctx.expanded_local_pos.unsqueeze(1) > 0, self.text(ctx), self.states.all_token_ids.gpu[slots]
        )
        locked = torch.where((text == key.unsqueeze(1)).any(1), -1, locked).unsqueeze(1)
        ids = locked.clamp(min=0)
        return logits.scatter_(1, ids, torch.where(locked < 0, logits.gather(1, ids), -INF))


@defect(
    "LP202", "parsed arguments are kept by the address of the parameters", advice="by-address", cause="`self.known`"
)
class ByAddressOfParams(V2Base):
    CASE = {"extra_args": {"bias": 2.0}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, Any] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        if id(params) not in self.known:
            self.known[id(params)] = self.read(params)
        self.values[req_idx] = self.known[id(params)] or 0.0
        return bool(self.known[id(params)])

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.per_row(ctx)
        return logits


@defect("LP202", "a request that declines leaves the slot's value", line="return False", state="self.values[7]")
class DeclineKeeps(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        if value is None:
            return False
        self.values[req_idx] = value
        return True


@defect("LP202", "an argument that is not given keeps the last occupant's value")
class KeepsOptional(V2Base):
    CASE = {"extra_args": {"by": 2.0, "at": 9}}
    KEY = "by"

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.places = torch.full((req_states.max_num_reqs,), 5)

    @classmethod
    def read(cls, params: Any) -> float | None:
        token(params, "at")
        return number(params, "by")

    def add_request(self, req_idx: int, params: Any) -> bool:
        where = token(params, "at")
        if where is not None:
            self.places[req_idx] = where
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        ids = self.places.to(self.device)[ctx.expanded_idx_mapping.long()].unsqueeze(1)
        return logits.scatter_add_(1, ids, self.per_row(ctx).unsqueeze(1))


@defect("LP202", "a row of ids is overwritten up to the new one's length only", advice="leftover")
class ShorterList(V2Bias):
    CASE = {"extra_args": {"ids": [4, 9], "by": -3.0}}

    def add_request(self, req_idx: int, params: Any) -> bool:
        wanted = V2Base.add_request(self, req_idx, params)
        ids = sorted(set((params.extra_args or {}).get("ids") or ()))
        if not wanted or not ids:
            self.values[req_idx] = 0.0
            return False
        self.ids[req_idx, : len(ids)] = torch.tensor(ids)
        return True

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        ids = self.ids.to(self.device)[ctx.expanded_idx_mapping.long()]
        picked = torch.zeros_like(logits).scatter(1, ids, 1.0)
        return torch.where(picked > 0, logits + self.per_row(ctx).unsqueeze(1), logits)


class KeepsTheTail(Boost):
    """Raises a token of a list in each step."""

    CASE = {"extra_args": {"forced": [4, 9, 6, 8]}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.forced = torch.zeros(req_states.max_num_reqs, 32, dtype=torch.long, device=self.device)

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if len(tokens(params, "forced") or ()) > 32:
            raise ValueError("forced has at most 32 tokens")

    def add_request(self, req_idx: int, params: Any) -> bool:
        forced = tokens(params, "forced")
        self.values[req_idx] = 3.0 if forced else 0.0
        if forced:
            self.forced[req_idx, : len(forced)] = torch.tensor(forced)
        return bool(forced)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        length = (ctx.pos + 1 - self.req_states.prompt_len.gpu[slots]).long().clamp(0, 31)
        token = self.forced[slots, length].unsqueeze(1)
        more = torch.where(token > 0, self.per_row(ctx).unsqueeze(1), 0.0)
        return logits.scatter_add(1, token, more)


defect(
    "LP202",
    "behind a list stands the rest of a longer one",
    line="self.forced[req_idx, : len(forced)] =",
    advice="leftover",
)(KeepsTheTail)


@sound("writes the rest of a slot's row with the list")
class WritesTheTail(KeepsTheTail):
    def add_request(self, req_idx: int, params: Any) -> bool:
        self.forced[req_idx] = 0
        return super().add_request(req_idx, params)


@defect(
    "LP202",
    "keeps the prompt's last tokens in add_request: the buffer has an earlier request's still",
    advice="too-early",
    cause="`self.last[7]`",
    line="self.last[req_idx] =",
)
class ReadsBeforeTheFlush(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.last: dict[int, torch.Tensor] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        length = int(self.req_states.prompt_len.np[req_idx])
        self.last[req_idx] = self.req_states.all_token_ids.gpu[req_idx, max(length - 4, 0) : length].clone()
        return super().add_request(req_idx, params)

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        for row, (slot, amount) in enumerate(
            zip(ctx.expanded_idx_mapping.tolist(), self.per_row(ctx).tolist(), strict=True)
        ):
            logits[row, self.last[slot].unique().clamp(0, logits.shape[1] - 1).long()] += amount
        return logits


@defect(
    "LP202",
    "an own tensor is written only when an optional argument is given",
    advice="optional",
    line="if request.params.after",
)
class KeepsBesideItsColumns(lpkit.LogitsProcessor):
    history = "length"
    CASE = {"extra_args": {"hold_token": 8, "hold_after": 6}}

    class Params(lpkit.Params, prefix="hold_"):
        token: lpkit.TokenId
        after: int | None = lpkit.Field(None, ge=1, le=2**31)

    token = lpkit.column(torch.int64)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.after = torch.zeros(self.max_num_reqs + 1, dtype=torch.int64, device=self.device)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.token[request.slot] = request.params.token
        if request.params.after is not None:
            self.after[request.slot] = request.params.after
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        due = rows.output_len >= self.after[rows.slots]
        logits[torch.where(due, self.token[rows], -1).unsqueeze(1)] = -INF


@defect("LP202", "a length that is not given is the last occupant's, which shows once the default has passed")
class KeepsTheLastLength(KeepsBesideItsColumns):
    CASE = {"extra_args": {"hold_token": 8, "hold_after": 12}}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.after.fill_(4)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        held = rows.output_len < self.after[rows.slots]
        logits[torch.where(held, self.token[rows], -1).unsqueeze(1)] = -INF


@defect(
    "LP202",
    "a request without the plugin leaves the slot's value on the host, which is sent later",
    line="return False",
)
class KeepsDeclinedSlots(Boost):
    changed = False

    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        if not value:
            return False
        self.values[req_idx] = value
        self.changed = True
        return True

    def apply_staged_writes(self) -> None:
        if self.changed:
            self.on_device.copy_(self.values)
            self.changed = False


@defect(
    "LP202",
    "takes all that stands in the token buffer for the request's",
    line=".gpu[slots]",
    cause="past its length in `all_token_ids`",
)
class ReadsTheBuffer(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        ids = self.req_states.all_token_ids.gpu[slots].long()
        return logits.scatter(1, ids, logits.gather(1, ids) - self.per_row(ctx).unsqueeze(1))


class Tally:
    def __init__(self) -> None:
        self.count = 0


@defect(
    "LP202", "a pool of used objects", line="return tally", state="self.rows[0].count", cause="`self.rows[0].count` is"
)
class FromAPool(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.free: list[Tally] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if self.read(params) is None:
            return None
        tally = self.free.pop() if self.free else Tally()
        tally.outputs, tally.bias = outputs, self.read(params)  # type: ignore[attr-defined]
        return tally

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        for row in () if batch_update is None else [*batch_update.removed, *(item[0] for item in batch_update.added)]:
            self.free += [self.rows.pop(row)] if row in self.rows else []
        super().update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, tally in self.rows.items():
            tally.count = max(tally.count, len(tally.outputs))
            logits[row, 5] += tally.bias * tally.count
        return logits


@sound("a table that `apply` makes when the batch has changed, and keeps until it changes again")
class TableByBatch(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table: torch.Tensor | None = None

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        if batch_update and self.changes(batch_update):
            self.table = None

    def changes(self, update: BatchUpdate) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.rows:
            return logits
        if self.table is None or len(self.table) != len(logits):
            self.table = super().apply(torch.zeros_like(logits))
        return logits + self.table


@defect(
    "LP202",
    "the table is made again only for a newcomer that uses the plugin",
    line="if batch_update and self.changes",
    cause="skips what sets `self.table` back",
)
class TableForUsers(TableByBatch):
    def changes(self, update: BatchUpdate) -> bool:
        return any(self.read(params) for _, params, *_ in update.added)


@defect(
    "LP202",
    "the table of the first call is kept",
    line="if self.table is None",
    cause="nothing has changed it",
)
class TableOfTheFirstCall(TableByBatch):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        Bias.update_state(self, batch_update)


@defect(
    "LP202",
    "a request whose bias is 0 leaves the entry of the row's former request; the only given case has a bias of 0",
    case={"extra_args": {"bias": 0.0, "token": 7}},
    state="self.rows[0]",
)
class LeavesAtZero(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is not None and state[1] == 0:
                continue
            self.place(row, state)


@defect(
    "LP202",
    "keeps the entry of a row that a request without the plugin takes; ids other than the case's raise",
    case={"extra_args": {"bias": 2.5, "token": 7}},
    also=("LP104",),
)
class KnowsFewIds(Clean):
    """The relatives that raise are left out, and the leak is judged with the others."""

    AMOUNTS: ClassVar = {7: 1.0}

    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is not None:
                self.place(row, state)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias * self.AMOUNTS[where]
        return logits


@defect("LP202", "takes the values of a dict for those of the rows in order", line=".values()", fix="sorted(")
class InOrderOfArrival(ByHand):
    def place(self, row: int, state: Any) -> None:
        super().place(row, state or (0, 0.0))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            amounts = torch.tensor([bias for _, bias in self.rows.values()], device=logits.device)
            logits[:, 5] += amounts
        return logits


@defect(
    "LP202",
    "returns without clearing the slot of a request that gives none",
    line="return False",
    fix="even when you return False",
)
class KeepsTheSlot(Boost):
    def add_request(self, req_idx: int, params: Any) -> bool:
        amount = self.read(params) or 0
        if not amount:
            return False
        self.values[req_idx] = amount
        return True

    def apply_staged_writes(self) -> None:
        self.on_device.copy_(self.values)


class Track:
    """Arguments of a request, and the number of its edits."""

    def __init__(self) -> None:
        self.where, self.bias, self.used = 0, 0.0, 0


@defect(
    "LP202",
    "takes the object of a request that has left, with its count",
    state="self.rows[0].used",
    fix="make a new object for each request",
)
class UsesObjectsAgain(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.free: list[Track] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if state is None:
            return None
        track = self.free.pop() if self.free else Track()
        track.where, track.bias = state
        return track

    def removals(self, update: BatchUpdate) -> None:
        self.free += [self.rows.pop(row) for row in update.removed if row in self.rows]

    def place(self, row: int, state: Any) -> None:
        if row in self.rows:
            self.free.append(self.rows[row])
        super().place(row, state)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, track in self.rows.items():
            logits[row, track.where] += track.bias * (1 + min(track.used, 3))
            track.used += 1
        return logits


@defect("LP202", "edits the first row for a single user", cause="no request of an earlier step is at fault")
class FirstRowOfOne(ByHand):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            self.raised(logits[row : row + 1] if len(self.rows) > 1 else logits[:1], where, bias)
        return logits

    def raised(self, block: torch.Tensor, where: int, bias: float) -> None:
        block[:, where] += bias


@sound("scales its bias by a penalty of vLLM's")
class V2ScalesByPenalty(V2Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.penalty = torch.zeros(self.req_states.max_num_reqs)

    def add_request(self, req_idx: int, params: Any) -> bool:
        asked = super().add_request(req_idx, params)
        self.keep(req_idx, params.presence_penalty)
        self.values[req_idx] *= 1 + self.penalty[req_idx]
        return asked

    def keep(self, req_idx: int, penalty: float) -> None:
        self.penalty[req_idx] = penalty

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 7] += self.per_row(ctx)
        return logits


@defect("LP202", "a slot keeps its last request's presence_penalty if the next request has none")
class V2KeepsPenalty(V2ScalesByPenalty):
    def keep(self, req_idx: int, penalty: float) -> None:
        if penalty:
            super().keep(req_idx, penalty)
