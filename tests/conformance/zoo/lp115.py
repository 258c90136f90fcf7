"""Defects that LP115 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import lpkit
import torch

from zoo.arguments import token, tokens
from zoo.bases import Dense
from zoo.correct.v1 import V1Base
from zoo.correct.v1_history import History
from zoo.registry import defect, sound


@sound("token 0 is a token")
class BansAToken(V1Base):
    CASE = {"extra_args": {"banned": 7}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "banned")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, banned in self.rows.items():
            logits[row, banned] = -torch.inf
        return logits


@defect("LP115", "bans nothing if it is asked to ban token 0")
class BansNoTokenZero(BansAToken):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return self.read(params) or None


@defect(
    "LP115",
    "asks for the truth of a token, of which a given one is 0: this case has no effect",
    case={"extra_args": {"banned": 7}},
    others=[{"extra_args": {"banned": 0}}],
    line="if banned :=",
)
class BansNoGivenZero(BansAToken):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if banned := self.read(params):
            return banned
        return None


@sound("0 would switch it off, and validation says so")
class RefusesTokenZero(BansNoTokenZero):
    @classmethod
    def read(cls, params: Any) -> Any:
        banned = token(params, "banned")
        if banned == 0:
            raise ValueError("banned must be above 0")
        return banned


@sound("its argument is a number of tokens, of which 0 is none")
class KeepsTheBest(BansNoTokenZero):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, kept in self.rows.items():
            logits[row, logits[row] < logits[row].topk(kept).values[-1]] = -torch.inf
        return logits


class BansAList(V1Base):
    CASE = {"extra_args": {"banned": [7, 9]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        banned = tokens(params, "banned")
        if banned and len(banned) > 8:
            raise ValueError("banned must have at most 8 tokens")
        return banned

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lists = torch.zeros(self.max_num_seqs, 8, dtype=torch.int64, device=self.device)

    def listed(self, row: int) -> torch.Tensor:
        return self.lists[row]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, banned in self.rows.items():
            self.lists[row] = 0
            self.lists[row, : len(banned)] = torch.tensor(banned, device=self.device)
            logits[row, self.listed(row)] -= 20.0
        return logits


@defect(
    "LP115", "fills up its lists with 0", cause="`self.lists` is padded", line="self.lists[row] = 0", advice="filled"
)
class FillsUpWithZero(BansAList):
    pass


@defect("LP115", "fills up its lists with -1, which as an index is the last token", line="[-1] *", cause="token 511")
class FillsUpWithTheLast(BansAList):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        banned = self.read(params)
        return None if banned is None else banned + [-1] * (8 - len(banned))


@sound("fills up its lists with 0, and takes as many as it has")
class CountsItsLists(BansAList):
    def listed(self, row: int) -> torch.Tensor:
        return self.lists[row, : len(self.rows[row])]


@sound("bans token 0, too, whatever it is given")
class BansTheFirst(CountsItsLists):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits = super().apply(logits)
        logits[list(self.rows), 0] = -torch.inf
        return logits


@defect("LP115", "puts token 0 in the place of the prompt", line="masked_fill", cause="`ids` has 0")
class PromptIsTokenZero(Dense):
    history = "tokens"
    FILLER = 0

    def ids(self, rows: lpkit.Rows, vocab_size: int) -> torch.Tensor:
        ids = rows.tokens.masked_fill(~rows.is_output, self.FILLER)
        return ids % vocab_size

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        seen = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, self.ids(rows, logits.shape[1]), True)
        return logits - seen * self.amount[rows].unsqueeze(1)


@defect("LP115", "puts the last token in the place of the prompt, as -1 is an index", line="masked_fill")
class PromptIsTheLastToken(PromptIsTokenZero):
    FILLER = -1


@sound("lowers what was written, and token 0 with it, whatever was written")
class LowersTokenZeroToo(Dense):
    history = "tokens"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = rows.tokens.clamp(0, logits.shape[1] - 1)
        seen = torch.zeros_like(logits).scatter_reduce_(1, ids, rows.is_output.to(logits.dtype), "amax")
        seen[:, 0] = 1.0
        return logits - seen * self.amount[rows].unsqueeze(1)


@sound("lowers token 0 and what was written, of which it makes one list")
class ListsTokenZeroToo(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            ids = torch.tensor([0, *(token for token in outputs if token > 0)], device=logits.device)
            logits[row, ids.unique()] -= weight
        return logits
