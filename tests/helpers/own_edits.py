"""Classes whose ``edit`` is elementwise and of no rule: one kernel does each."""

from __future__ import annotations

import math
from typing import Any

import lpkit
import torch


class OwnEdit(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        ids: tuple[int, ...]
        values: tuple[float, ...] = ()
        factor: float = 1.5
        count: int = 3
        token: int = 5

    ids = lpkit.ragged(torch.int64, limit=2048)  # longer than what a program reads at a time
    values = lpkit.ragged(torch.float32, fill=0.0, limit=2048)
    factor = lpkit.column(torch.float32)
    count = lpkit.column(torch.int64)
    token = lpkit.column(torch.int64)


class Multiplies(OwnEdit):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]
        logits[ids] = logits[ids] * self.factor[rows].unsqueeze(1)


class Adds(OwnEdit):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.ids[rows]] += self.values[rows]


class Rounds(OwnEdit):
    """A product and a sum, which a GPU would round once; numbers on either side, and all ways to choose."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids, factor = self.ids[rows], self.factor[rows][:, None]
        before = logits[ids]
        after = before * factor + 0.1 * self.values[rows]
        after = torch.where((before > 0.1) & (after != 0), after / factor, -after)
        after = (1 - after).clamp(min=-0.7).maximum(self.values[rows]).masked_fill(before.abs() < 0.2, -math.inf)
        logits[ids] = torch.minimum(after, before * 3.3).clamp(-5, 5.5).where(before == before, 2.0 - before / 4)


class ByLength(OwnEdit):
    """Numbers of the history, of other types than the logits."""

    history = "length"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        late = (rows.output_len >= self.count[rows]) | (rows.prompt_len > rows.total_len - 1)
        share = ((rows.output_len - self.count[rows]) / rows.total_len).unsqueeze(1) * rows.temperature
        token = self.token[rows].unsqueeze(1)
        logits[token] = logits[token] + share.where(late.unsqueeze(1), self.count[rows].unsqueeze(1) * -0.3)
        logits[token] += (late[:, None] & (self.factor[rows][:, None] > 1)) * abs(self.factor[rows].unsqueeze(1))


class Repeats(OwnEdit):
    """A repetition penalty on outputs, and a second write, which reads the first one's."""

    history = "tokens"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        tokens, factor = rows.tokens.where(rows.is_output, -1), self.factor[rows].unsqueeze(1)
        before = logits[tokens]
        logits[tokens] = torch.where(before > 0, before / factor, before * factor)
        token = self.token[rows].unsqueeze(1)
        logits[token] = logits[token] - logits[self.token[rows].unsqueeze(1) + 1] * self.factor[rows][:, None]


class AfterPadding(OwnEdit):
    """Behind a text's end is -1, and becomes a token here; a list and the last token."""

    history = "tokens"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids, last = self.ids[rows], rows.tokens.gather(1, (rows.total_len - 1).clamp(0)[:, None])
        logits[ids] += self.factor[rows][:, None].masked_fill(last != self.token[rows][:, None], 0)
        logits[rows.tokens + 1] = -1


class Bans(OwnEdit):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.ids[rows]] = -torch.inf


OWN_EDITS: dict[str, type[OwnEdit]] = {
    cls.__name__: cls for cls in (Multiplies, Adds, Rounds, ByLength, Repeats, AfterPadding, Bans)
}
CASE: dict[str, Any] = {"extra_args": {"ids": [3, 7, 3], "values": [0.5, -1.0, 0.5]}}


class OwnProcess(lpkit.LogitsProcessor):
    stage = "sampling"

    class Params(lpkit.Params):
        share: float
        factor: float = 1.5
        count: int = 3

    share = lpkit.column(torch.float32, default=0.5)
    factor = lpkit.column(torch.float32)
    count = lpkit.column(torch.int64)


class MinP(OwnProcess):
    """As in the README."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax(-1, keepdim=True) + rows.temperature * self.share[rows].log().unsqueeze(1)
        return logits.masked_fill_(logits < floor, -math.inf)


class Cools(OwnProcess):
    """Every element is written, by a product and a sum, which a GPU would round once."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        factor = torch.exp(self.factor[rows])[:, None]
        return logits * factor + self.count[rows].unsqueeze(1) * 0.25


class Squeezes(OwnProcess):
    """Of the highest logit without a limit; numbers, a condition per row, and a NaN that is masked."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        top = logits.max(-1, keepdim=True).values
        near = (top - logits).clamp(max=9.5) / (self.share[rows] ** 0.5 + 1.0).unsqueeze(1)
        near = torch.where(self.count[rows].unsqueeze(1) > 2, near, abs(near - self.factor[rows].sqrt().unsqueeze(1)))
        return (top - near).masked_fill(logits < -3.0, -math.inf)


class Fills(OwnProcess):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return torch.where((logits > self.factor[rows].unsqueeze(1)) | (logits != logits), -math.inf, logits)


class Stays(OwnProcess):
    """A limit that a NaN does not pass, a bound that is NaN, and a mask per row."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        top, share = logits.amax((-1,), keepdim=True), self.share[rows].unsqueeze(1)
        floor = torch.where(top > 1.0, top - share, -share).where(share > 0.3, (0.5 - share).log())
        lower = logits.clamp(min=(0.4 - self.share[rows]).log().unsqueeze(1)).where(share > 0.6, logits)
        return lower.masked_fill(lower < floor, -math.inf)


class MasksRows(OwnProcess):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill_((self.factor[rows] > 1.2).unsqueeze(1), -math.inf)


class Limits(OwnProcess):
    """Spans with a NaN keep it, although the limit is a number."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        top = logits.amax(-1, keepdim=True)
        floor = torch.where(top > 1.0, top - 1.0, self.share[rows].unsqueeze(1))
        return logits.masked_fill_(logits < floor, -math.inf)


OWN_PROCESSES: dict[str, type[OwnProcess]] = {
    cls.__name__: cls for cls in (MinP, Cools, Squeezes, Fills, Stays, MasksRows, Limits)
}
PROCESS_CASE: dict[str, Any] = {"extra_args": {"share": 0.2}}
