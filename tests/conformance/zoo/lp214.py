"""Defects that LP214 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch
from lpkit import v2
from torch.nn.utils.rnn import pad_sequence

from zoo.bases import ByLength, Dense, Relative
from zoo.correct.portable import PortableCopyBoost
from zoo.correct.v1 import Bias, V1Base
from zoo.correct.v1_history import History
from zoo.correct.v1_odd import Listed
from zoo.registry import defect, sound


@defect(
    "LP214",
    "a window of the last 32 tokens where the whole history is meant",
    missed="a function of the tokens, so right for all the suite can know: that it is the wrong one is for the "
    "plugin's own tests",
)
class ShortWindow(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            for item in {token for token in outputs[-32:] if token >= 0}:
                logits[row, item] -= weight
        return logits


@defect("LP214", "a flat table with 32 places per row: the 33rd token of a row lands in the next one's")
class FlatTable(Relative):
    WIDTH = 32

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        table = [0] * ((logits.shape[0] + 8) * self.WIDTH * 4)
        for row, (_, outputs, _) in self.rows.items():
            for n, item in enumerate(outputs):
                table[row * self.WIDTH + n] += 1 + item % 3
        for row, (weight, _, _) in self.rows.items():
            total = sum(table[row * self.WIDTH : (row + 1) * self.WIDTH])
            logits[row, 3 + total % 12] += weight
        return logits


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


@defect("LP214", "takes padding for token 0 of the prompt: there is none where 64 tokens fill the buffer")
class PaddingIsToken(PortableCopyBoost):
    CASE = {"extra_args": {"copy_boost": 2.5}}

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        present = torch.zeros_like(logits, dtype=torch.int64)
        present.scatter_add_(1, rows.tokens.clamp(min=0), (~rows.is_output).long())
        return torch.where(present > 0, logits + self.boost[rows].unsqueeze(1), logits)


@defect("LP214", "a conversation is known by the first 48 tokens of its prompt, which are those of the template")
class ByTemplate(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[Any, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if state is None or not prompt or len(prompt) < 96:
            return state
        return self.known.setdefault(tuple(prompt[:48]), state)


@sound("lowers the tokens of the prompt, and finds them by all of it")
class LowersThePrompt(History):
    HEAD: int | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sets: dict[tuple[int, ...], list[int]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight, head = self.read(params), tuple((prompt or ())[: self.HEAD])
        if len(self.sets) >= 64:
            self.sets.clear()
        return None if weight is None else (weight, self.sets.setdefault(head, sorted({*(prompt or ())})))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, tokens) in self.rows.items():
            logits[row, [token for token in tokens if token < logits.shape[1]]] -= weight
        return logits


@defect("LP214", "lowers the tokens of the prompt, and finds them by its first 32", state="self.sets", cause="the key")
class LowersByTheHead(LowersThePrompt):
    HEAD = 32


@defect("LP214", "what fills up the shorter histories counts as token 0", line="clamp(min=0)", advice="clamped")
class PaddingIsTokenZero(Dense):
    history = "tokens"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        seen = torch.zeros_like(logits).scatter_(1, rows.tokens.clamp(min=0), 1.0)
        return logits - seen * self.amount[rows].unsqueeze(1)


class CountsTokens(History):
    """Lowers a token by how often the output has it; the sound version."""

    DTYPE = torch.int32

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            ids = torch.tensor([token for token in outputs if token >= 0], dtype=torch.int64, device=logits.device)
            counts = torch.zeros(logits.shape[1], dtype=self.DTYPE, device=logits.device)
            counts.index_add_(0, ids, torch.ones_like(ids, dtype=self.DTYPE))
            logits[row] -= weight * counts
        return logits


@sound("counts tokens in numbers that are large enough")
class CountsInWideNumbers(CountsTokens):
    pass


@defect("LP214", "counts tokens in a byte", line="torch.uint8", cause="no room for 256", fix="torch.int32")
class CountsInAByte(CountsTokens):
    DTYPE = torch.uint8


@defect("LP214", "counts tokens in a signed byte", cause="no room for 128")
class CountsInASignedByte(CountsTokens):
    DTYPE = torch.int8


@defect("LP214", "a helper takes padding for token 0", line="clamp(min=0)", cause="turns the padding")
class LowersPadding(Dense):
    history = "tokens"
    process = lpkit.LogitsProcessor.process

    def known(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.tokens.clamp(min=0)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.known(rows)
        logits[ids] = logits[ids] - self.amount[rows].unsqueeze(1)


@defect("LP214", "takes the last columns of all rows", line="[:, -4:]", state="recent", advice="from-the-end")
class TakesLastColumns(Dense):
    history = "tokens"
    process = lpkit.LogitsProcessor.process

    def recent(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.tokens[:, -4:].contiguous()

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        recent = self.recent(rows)
        logits[recent] = logits[recent] - self.amount[rows].unsqueeze(1)


@defect(
    "LP214", "fills shorter lists up with token 0", line="pad_sequence(", state="ids", advice="filled", also=("LP201",)
)
class FillsWithTokenZero(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else (weight, prompt or [0], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            texts = [
                torch.tensor([i for i in [*prompt, *outputs] if i >= 0], device=self.device)
                for _, prompt, outputs in self.rows.values()
            ]
            ids = pad_sequence(texts, batch_first=True)
            weights = torch.tensor([weight for weight, *_ in self.rows.values()], device=self.device).unsqueeze(1)
            rows = torch.tensor(list(self.rows), device=self.device).unsqueeze(1)
            logits[rows, ids] = logits[rows, ids] - weights
        return logits


class OfItsTokens(Listed):
    """Lowers the request's own tokens by a number that it takes from the output; the sound version."""

    DTYPE = torch.int32

    def number(self, token: int, outputs: list[int]) -> int:
        return outputs.count(token)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = self.read(params)
        return ids and (ids, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (ids, outputs) in self.rows.items():
            for token in ids:
                number = torch.tensor(self.number(token, [item for item in outputs if item >= 0]))
                logits[row, token] -= 0.01 * number.to(self.DTYPE).item()
        return logits


@sound("counts its own tokens in numbers that are large enough")
class CountsItsTokens(OfItsTokens):
    pass


@defect("LP214", "counts its own tokens in a byte, and no others", line="torch.uint8", cause="no room for 256")
class CountsItsTokensInAByte(OfItsTokens):
    DTYPE = torch.uint8


@sound("the age of a token, and nothing beyond 200")
class AgeInWindow(OfItsTokens):
    def number(self, token: int, outputs: list[int]) -> int:
        return min([n for n, item in enumerate(outputs[:-201:-1], 1) if item == token], default=0)


@defect("LP214", "the age of a token in a byte", fix="torch.int32")
class AgeInAByte(CountsItsTokensInAByte):
    def number(self, token: int, outputs: list[int]) -> int:
        return min([n for n, item in enumerate(reversed(outputs), 1) if item == token], default=0)


@defect(
    "LP214",
    "the lowest eight bits of the age of a token",
    line="& 0xFF",
    cause="`(len(outputs) - at) & 0xFF` begins again at 256",
    fix="without `(len(outputs) - at) & 0xFF`",
)
class AgeInEightBits(OfItsTokens):
    def number(self, token: int, outputs: list[int]) -> int:
        at = max([at for at, item in enumerate(outputs) if item == token], default=len(outputs))
        return (len(outputs) - at) & 0xFF


@defect("LP214", "the age of a token without its multiples of 256", cause="as it does in a byte", fix="Python `int`")
class AgeWithoutMultiples(OfItsTokens):
    MOST = 256

    def number(self, token: int, outputs: list[int]) -> int:
        age = min([n for n, item in enumerate(reversed(outputs), 1) if item == token], default=0)
        return age - age // self.MOST * self.MOST


@defect("LP214", "the number of different tokens in a byte", fix="torch.int32")
class DifferentInAByte(CountsItsTokensInAByte):
    def number(self, token: int, outputs: list[int]) -> int:
        return len({*outputs})


@defect("LP214", "reads the fourth token of the prompt, which a short prompt lacks", fix="when a prompt is short")
class ReadsTheFourth(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None or prompt is None else (prompt[3] % 512, bias)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias
        return logits
