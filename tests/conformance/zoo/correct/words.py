"""Correct processors that know tokens by their words, of the request and of their own."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import lpkit
import torch
from lpkit import sequences

from zoo.arguments import INF
from zoo.registry import sound

BANS = {"extra_args": {"ban_words": ["yes", "no"]}}


def _ban(ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    logits[ids] = -INF
    return logits


@sound("forbids the words that a request gives", case=BANS)
class BansWords(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="ban_"):
        words: Annotated[lpkit.TokenIdsOf, lpkit.WordForms(spaces=True, cases=True)] = lpkit.Field(min_length=1)

    banned = lpkit.token_set()

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.banned[request.slot] = request.params.words
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill_(self.banned[rows], -INF)


@sound("forbids the end of a phrase of several tokens", case={"extra_args": {"ban_phrase": ["yes no maybe"]}})
class BansAPhrase(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params, prefix="ban_"):
        phrase: lpkit.TokenSequencesOf = lpkit.Field(min_length=1, max_length=1)

    phrase = lpkit.ragged(torch.int64)
    size = lpkit.column(torch.int64)
    last = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        (tokens,) = request.params.phrase
        self.phrase[request.slot] = tokens
        self.size[request.slot] = len(tokens)
        self.last[request.slot] = tokens[-1]
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        written = sequences.begun(rows.tokens, rows.total_len, self.phrase[rows], rows.prompt_len)
        due = torch.where(written == self.size[rows] - 1, self.last[rows], -1)
        logits[due.unsqueeze(1)] = -INF


@sound(
    "looks its own words up when it is constructed, and declines every request where it does not find them",
    case={"extra_args": {"agree_by": 2.5}},
)
class Agrees(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="agree_"):
        by: float = lpkit.Field(ge=-50.0, le=50.0)

    by = lpkit.column(torch.float32)

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        super().__init__(vllm_config, device_or_states, is_pin_memory)
        try:
            ids = lpkit.words(self, ["yes"], spaces=True, cases=True, several="skip")
        except (lpkit.NoTokenizer, ValueError):
            ids = []
        self.ids = torch.tensor([ids], dtype=torch.int64, device=self.device)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.by[request.slot] = request.params.by
        return self.ids.numel() > 0

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids.expand(rows.n, -1)
        logits[ids] = logits[ids] + self.by[rows].unsqueeze(1)


@sound("a callable that is bound to the words of its request", case=BANS)
class AdapterBansWords(lpkit.AdapterLogitsProcessor):
    history = "length"
    Params = BansWords.Params

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return functools.partial(_ban, list(own.words)) if own else None
