"""Rules that begin late, end early or wait for something, and break the contract only then."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.arguments import INF
from zoo.registry import defect, sound
from zoo.v1_correct import V1Base
from zoo.v2_correct import V2MinTokens


class Late(V1Base):
    """Its bias begins with the ``FIRST``-th output token; the state is the bias, the token and the live list."""

    CASE = {"extra_args": {"bias": 2.5, "token": 7}}
    FIRST = 20

    @classmethod
    def read(cls, params: Any) -> Any:
        args = params.extra_args or {}
        bias, where = args.get("bias"), args.get("token")
        if bias is None and where is None:
            return None
        if type(bias) not in (int, float) or not -100 <= bias <= 100 or type(where) is not int or not 0 <= where < 512:
            raise ValueError("bias must be a number in [-100, 100] and token an id below 512")
        return where, bias

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return None if state is None else (*state, prompt or [], outputs)

    def due(self, outputs: list[int]) -> bool:
        return len(outputs) >= self.FIRST

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                self.act(logits[row], where, bias)
        return logits

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] += bias


@defect("LP302", "scales the whole batch, from the 20th token of any of its requests", style="v1")
class LateScale(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if any(self.due(outputs) for *_, outputs in self.rows.values()):
            logits *= 0.5
        return logits


@defect("LP303", "adds more with each call, from the 20th token", style="v1")
class LateCount(Late):
    calls = 0

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        self.calls += 1
        row[where] += bias * self.calls


@defect("LP304", "flat indices, from the 20th token", style="v1")
class LateFlat(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        due = [(row, where) for row, (where, _, _, outputs) in self.rows.items() if self.due(outputs)]
        if due:
            logits.view(-1)[[row * logits.shape[1] + where for row, where in due]] += 2.0
        return logits


@defect("LP305", "writes a finite value over its token, masked or not, from the 20th token", style="v1")
class LateRevival(Late):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] = 9.0 + bias


@defect("LP306", "divides by the number of tokens that are left of its budget, which is 0 once", style="v1")
class LateNan(Late):
    FIRST = 25

    def due(self, outputs: list[int]) -> bool:
        return len(outputs) <= self.FIRST

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                left = torch.tensor(float(self.FIRST - len(outputs)))
                logits[row, where] += bias * (left / left)
        return logits


@defect("LP307", "masks everything but its token, and that token too, when the budget of 30 is spent", style="v1")
class LateSilence(Late):
    FIRST = 30

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row.fill_(-INF)


@defect("LP401", "its claim holds for 20 tokens", style="v1")
class LateClaim(Late):
    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.due(outputs):
                logits[row, where] += bias
            else:
                logits[row] *= 1.5
        return logits


@defect("LP402", "claims to keep the argmax until a request is 20 tokens old", style="v1")
class LateChange(Late):
    def is_argmax_invariant(self) -> bool:
        return not any(self.due(outputs) for *_, outputs in self.rows.values())


class PortableLate(lpkit.LogitsProcessor):
    """A boost from the n-th output token on."""

    CASE = {"extra_args": {"late_bias": 3.0, "late_token": 17}}
    history = "length"

    class Params(lpkit.Params, prefix="late_"):
        bias: float = lpkit.Field(ge=-100.0, le=100.0)
        token: lpkit.TokenId
        start: int = lpkit.Field(default=20, ge=0)

    bias = lpkit.column(torch.float32)
    token = lpkit.column(torch.int64)
    start = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.bias[request.slot] = request.params.bias
        self.token[request.slot] = request.params.token
        self.start[request.slot] = request.params.start
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].unsqueeze(1)
        now = logits[ids]
        due = (rows.output_len >= self.start[rows]).unsqueeze(1)
        logits[ids] = torch.where(due, self.change(now), now)

    def change(self, now: torch.Tensor) -> torch.Tensor:
        return now + 3.0


@defect("LP305", "writes a finite value over its token, masked or not, from the 20th token", style="portable")
class PortableLateRevival(PortableLate):
    def change(self, now: torch.Tensor) -> torch.Tensor:
        return torch.full_like(now, 9.0)


class V2OnceOld(V2MinTokens):
    """Raises a token once the output is as long as its argument says."""

    def lengths(self) -> torch.Tensor:
        return self.req_states.prompt_len.gpu

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        slots, lengths = ctx.expanded_idx_mapping.long(), self.lengths()
        asked = self.per_row(ctx)
        due = (asked > 0) & (lengths[slots] > 0) & (ctx.pos + 1 - lengths[slots] >= asked)
        logits[:, 2] = torch.where(due, logits[:, 2] + 3.0, logits[:, 2])
        return logits


@defect(
    "LP802",
    "keeps prompt_len.gpu, in which no prompt ever has a length",
    style="v2",
    case={"extra_args": {"least": 2.0}},
)
class V2OldLengths(V2OnceOld):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.kept = req_states.prompt_len.gpu

    def lengths(self) -> torch.Tensor:
        return self.kept


# -- correct ones that look odd --------------------------------------------------------------------------------


@sound("begins with the 30th token", "v1")
class FromTheThirtieth(Late):
    FIRST = 30


@sound("acts on the first token only", "v1")
class FirstTokenOnly(Late):
    def due(self, outputs: list[int]) -> bool:
        return not outputs


@sound("acts on every tenth token only", "v1")
class EveryTenth(Late):
    def due(self, outputs: list[int]) -> bool:
        return len(outputs) % 10 == 9


@sound("begins with the 20th token", "portable")
class PortableFromTheTwentieth(PortableLate):
    pass


# -- what waits for a token ------------------------------------------------------------------------------------


class AfterMarker(Late):
    """Its bias needs a marker as the last token."""

    MARKER = 300

    def due(self, outputs: list[int]) -> bool:
        return outputs[-1:] == [self.MARKER]


class IfBest(Late):
    """Its bias needs a certain token to be the best one."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, _) in self.rows.items():
            if int(logits[row].argmax()) == 311:
                self.act(logits[row], where, bias)
        return logits


class IfPrompted(Late):
    """Its bias needs a certain token in the prompt."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, prompt, _) in self.rows.items():
            if 322 in prompt:
                self.act(logits[row], where, bias)
        return logits


class Forgetful(Late):
    """Does not forget a request when another one that does not use it takes its row."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        kept = dict(self.rows)
        super().update_state(batch_update)
        for row, params, *_ in batch_update.added if batch_update else ():
            if self.read(params) is None and row in kept:
                self.rows[row] = kept[row]


@defect("LP306", "0 / 0 once a marker was generated that no case gives", style="v1")
class NanAfterMarker(Late):
    FIRST = 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            seen = torch.tensor(float(333 not in outputs[-1:]))
            logits[row, where] += bias * (seen / seen)
        return logits


@defect("LP305", "revives a masked token after a marker that no case gives", style="v1")
class RevivesAfterMarker(AfterMarker):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] = 9.0


@defect("LP306", "0 / 0 in rows whose best token is a certain one", style="v1")
class NanIfBest(IfBest):
    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] += bias * ((row[311] - row.max()) / (row[311] - row.max()))


@defect("LP202", "a decline leaves the old state; acts only if a certain token is in the prompt", style="v1")
class ForgetfulIfPrompted(Forgetful, IfPrompted):
    pass


@defect("LP202", "a decline leaves the old state; acts only after a marker", style="v1")
class ForgetfulAfterMarker(Forgetful, AfterMarker):
    pass


@defect("LP202", "a decline leaves the old state; acts from the 100th token on", style="v1")
class ForgetfulLate(Forgetful):
    FIRST = 100


@defect("LP305", "a finite value over a mask, with arguments that no case gives", style="portable", case={})
class RevivesWithoutCase(PortableLate):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.token[rows].unsqueeze(1)] = self.bias[rows].unsqueeze(1)


@sound("acts only after a marker that no case gives", "v1")
class AfterMarkerOnly(AfterMarker):
    pass


@sound("acts only if a certain token is the best one", "v1")
class IfBestOnly(IfBest):
    pass


@sound("acts only if a certain token is in the prompt", "v1")
class IfPromptedOnly(IfPrompted):
    pass


@sound("begins with the 100th token", "v1")
class FromTheHundredth(Late):
    FIRST = 100


@sound("declares what its arguments may be, and gets no case", "portable", case={})
class WithoutCase(PortableLate):
    pass


@sound("acts once the output is long enough", "v2", case={"extra_args": {"least": 2.0}})
class V2LongEnough(V2OnceOld):
    pass
