"""Correct portable processors that test the SDK's promises: a broken promise produces NaN.

The zoo's processors show the SDK's effect on them. A mutant that misleads all of them equally, alone and in a batch
and on both runners, shows only in these processors.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import lpkit
import torch
from zoo.registry import sound

NAN = float("nan")


@sound("compares lengths, tokens, outputs and columns with each other")
class WitnessRows(lpkit.LogitsProcessor):
    history = "tokens"
    CASE = {"extra_args": {"wr_amount": 1.5, "wr_more": 0.5}}

    class Params(lpkit.Params, prefix="wr_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)
        more: float | None = lpkit.Field(None, ge=-50.0, le=50.0)

    amount = lpkit.column(torch.float32)
    given = lpkit.column(torch.bool)
    more = lpkit.column(torch.float32)
    pair = lpkit.column(torch.int32, default=-7, width=2)
    taken = lpkit.column(torch.bool)
    untouched = lpkit.column(torch.float64, default=0.5)
    prompt_size = lpkit.column(torch.int32, default=-1)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.amount
        self.taken[request.slot] = True
        if request.prompt_token_ids is not None:
            self.prompt_size[request.slot] = len(request.prompt_token_ids)
        self.given[request.slot] = request.params.more is not None
        if request.params.more is not None:  # else the slot's default has to stand
            self.more[request.slot] = request.params.more
            self.pair[request.slot] = [3, 4]
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids, given, more = rows.tokens, self.given[rows], self.more[rows]
        place = torch.arange(ids.shape[1], device=self.device)
        visible = place < rows.total_len[:, None]
        prompt = place < rows.prompt_len[:, None]
        good = ((ids >= 0) | ~prompt).all(1) & ((ids < 0) | visible).all(1)
        good &= (rows.is_output == (visible & ~prompt & (ids >= 0))).all(1)
        good &= (rows.output_len == rows.total_len - rows.prompt_len) & (rows.total_len <= ids.shape[1])
        good &= (self.prompt_size[rows] < 0) | (self.prompt_size[rows] == rows.prompt_len)
        good &= given | ((more == 0) & (self.pair[rows] == -7).all(1))
        self.amount[rows].zero_()  # what was read is the reader's own
        good &= self.amount.all[rows.slots] == self.amount[rows]
        good &= self.taken[rows] & self.taken.used & (not self.untouched.used)
        good &= (rows.temperature > 0).all(1) & (torch.ones_like(good).sum() == rows.n)
        first = ids[:, :1].clamp(min=0)
        edited = logits + (self.amount[rows] + more)[:, None]
        edited = edited.scatter_add(1, first, rows.output_len[:, None].to(logits.dtype))
        return torch.where(good[:, None], edited, NAN)


@sound("reads back what it wrote: token 0, padding between ids, rows without ids")
class WitnessSparse(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"ws_token": 9, "ws_amount": 2.0}}

    class Params(lpkit.Params, prefix="ws_"):
        token: lpkit.TokenId
        amount: float = lpkit.Field(ge=-50.0, le=50.0)

    token = lpkit.column(torch.int64)
    amount = lpkit.column(torch.float32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        token, amount = self.token[rows][:, None], self.amount[rows][:, None]
        every = torch.arange(self.vocab_size, device=self.device).expand(rows.n, -1)
        before = logits[every]
        none, zero = torch.full_like(token, -1), torch.zeros_like(token)
        ids = torch.cat((none, zero, torch.where(token % 2 == 0, token, none), none), 1)
        ids = torch.where(token % 3 == 0, none, ids)
        logits[ids] = logits[ids] + amount
        logits[ids[:, :0]] = before[:, :0]
        pair = torch.cat((zero, none), 1)
        logits[pair] = before[:, :1] + 1  # the second of them must not undo the first
        lone = logits[zero] == before[:, :1] + 1
        logits[zero] = torch.where(ids[:, 1:2] >= 0, before[:, :1] + amount, before[:, :1])
        changed = (torch.where(ids >= 0, ids, -1)[:, :, None] == every[:, None, :]).any(1)
        good = (logits[every] == torch.where(changed, before + amount, before)).all(1, keepdim=True)
        good &= lone & (logits[none] == logits[zero]).all(1, keepdim=True) & self.trains(rows)
        logits[token] = torch.where(good, logits[token] - amount, NAN)

    def trains(self, rows: lpkit.Rows) -> bool:
        """Return True if autograd gives each written value, and every other logit, its gradient once."""
        vocab = self.vocab_size
        with torch.inference_mode(False), torch.enable_grad():
            index, token = rows.index.clone(), self.token[rows].clone()[:, None] % vocab
            other, none = (token + 1) % vocab, torch.full_like(token, -1)
            held = torch.zeros(int(index.max()) + 1, vocab, requires_grad=True)
            values = torch.tensor([[3.0, 4.0]]).repeat(len(token), 1).requires_grad_()
            logits = held + 0
            ids = torch.cat((other, none, token, token, none + vocab + 1), 1)
            numbered: Any = SimpleNamespace(index=index, whole=False)
            lpkit.SparseLogits(logits, numbered)[ids] = values[:, [1, 0, 0, 0, 1]]
            rest, written = torch.autograd.grad(logits.sum(), (held, values))
            wanted = torch.zeros_like(held)
            wanted[index[:, None], torch.cat((token, other), 1)] = torch.tensor([3.0, 4.0])
            good = torch.equal(logits, wanted) and torch.equal(rest, (wanted == 0).float())
            return good and torch.equal(written, torch.ones_like(values))


@sound("writes a number to one token, and reads nothing but its column")
class WitnessBan(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"wb_token": 12}}

    class Params(lpkit.Params, prefix="wb_"):
        token: lpkit.TokenId

    token = lpkit.column(torch.int32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows][:, None].long()
        logits[ids] = -float("inf")
        logits[ids.expand(-1, 2)[:, 2:]] = 0.0


@sound("lists and sets of tokens, some of them empty")
class WitnessLists(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"wl_ids": [0, 5, 9], "wl_keep": [3, 9, 14]}}

    class Params(lpkit.Params, prefix="wl_"):
        ids: list[lpkit.TokenId] = lpkit.Field(max_length=64)
        keep: list[lpkit.TokenId] | None = None

    ids = lpkit.ragged(torch.int64)
    keep = lpkit.token_set()
    weight = lpkit.column(torch.float32, default=2.0)
    count = lpkit.ragged(torch.int64)
    last = lpkit.column(torch.int64)
    first = True

    def admit(self, request: lpkit.Request) -> bool:
        self.ids[request.slot] = request.params.ids
        size = 4 << request.slot % 5  # some are longer than those before them, which have to make room
        if self.first:
            size, self.first = 600, False  # and one leaves much room behind
        self.count[request.slot], self.last[request.slot] = range(size), size - 1
        if request.params.keep is not None:
            self.keep[request.slot] = request.params.keep
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids, kept = self.ids[rows], self.keep[rows]
        good = (self.keep.contains(rows, ids) == (kept.gather(1, ids.clamp(min=0)) & (ids >= 0))).all(1, keepdim=True)
        count, last = self.count[rows], self.last[rows].unsqueeze(1)
        place = torch.arange(count.shape[1], device=self.device)
        good &= (count == torch.where(place <= last, place, -1)).all(1, keepdim=True)
        raised = torch.where(kept, logits + self.weight[rows][:, None], logits)
        lowered = raised.scatter_add(1, ids.clamp(min=0), -(ids >= 0).to(logits.dtype))
        return torch.where(good, lowered, NAN)


@sound("a callable that needs no history, with V2's rows found on the host")
class WitnessCallable(lpkit.AdapterLogitsProcessor):
    history = "none"
    CASE = {"extra_args": {"wc_amount": 2.25}}

    class Params(lpkit.Params, prefix="wc_"):
        amount: float = lpkit.Field(ge=-50.0, le=50.0)

    def new_req_logits_processor(self, params: Any) -> Any:
        given = self.params(params)
        return (lambda output_ids, logits: logits.index_fill(0, logits.argmax(), given.amount)) if given else None


@sound("a callable that reads its last token, and refuses placeholders")
class WitnessText(lpkit.AdapterLogitsProcessor):
    CASE, Params = WitnessCallable.CASE, WitnessCallable.Params

    def new_req_logits_processor(self, params: Any) -> Any:
        given = self.params(params)

        def lower(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if min(output_ids, default=0) < 0:
                raise ValueError("the history is not known")
            if output_ids:
                logits[output_ids[-1]] -= given.amount
            return logits

        return lower if given else None
