"""Defects that LP308 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import numpy as np
import torch
from lpkit import v2

from zoo.arguments import INF
from zoo.bases import Boost, Dense, Late
from zoo.correct.v1 import Bias, V1Base
from zoo.correct.v2_odd import LowPart
from zoo.registry import defect, sound


@defect(
    "LP308",
    "one pinned buffer, overwritten while the copy of the last step is still under way",
    missed="a race that needs a GPU and a busy stream",
)
class OnePinnedBuffer(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.staged = torch.zeros(self.max_num_seqs, pin_memory=is_pin_memory)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            ids, bias = zip(*self.rows.values(), strict=True)
            self.staged[: len(bias)] = torch.tensor(bias)
            values = self.staged[: len(bias)].to(logits.device, non_blocking=True)
            logits.index_put_((torch.tensor(list(self.rows)), torch.tensor(ids)), values, accumulate=True)
        return logits


@defect("LP308", "edits the logits in numpy, through a copy on the host", fix="edit `logits` itself")
class EditsInNumpy(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        on_host = logits.cpu().numpy()
        for row, (where, bias, _, _) in self.rows.items():
            on_host[row, where] += np.float32(bias)
        return logits


@defect("LP308", "makes its values where it stands, not where the logits are")
class MakesOnCpu(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            ids, bias = zip(*self.rows.values(), strict=True)
            logits[torch.tensor(list(self.rows)), torch.tensor(ids)] += torch.tensor(bias)
        return logits


@defect("LP308", "copies the rows' slots to the host and applies the masks from there")
class MasksOnTheHost(LowPart):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits.masked_fill_(self.masks[ctx.expanded_idx_mapping.cpu().long()], -INF)


@defect("LP308", "adds values that stayed on the host")
class HostValues(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 5] += self.values[ctx.idx_mapping_np]
        return logits


@defect("LP308", "takes the logits for an array of the host")
class NumpyOfLogits(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    def best(self, row: torch.Tensor) -> int:
        return int(row.numpy().argmax())

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.rows.items():
            logits[row, self.best(logits[row])] -= bias
        return logits


@sound("copies the row to the host before it is an array")
class NumpyOfACopy(NumpyOfLogits):
    def best(self, row: torch.Tensor) -> int:
        return int(row.cpu().numpy().argmax())


@defect("LP308", "writes a value by age for each token, so a token that repeats has several")
class WritesByAge(Dense):
    history = "tokens"

    def amounts(self, rows: lpkit.Rows) -> torch.Tensor:
        return self.amount[rows].unsqueeze(1)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = rows.tokens.clamp(0, logits.shape[1] - 1)
        kept = ids == rows.tokens
        age = rows.total_len.unsqueeze(1) - torch.arange(ids.shape[1], device=self.device)
        faded = logits.gather(1, ids) - self.amounts(rows) * 0.9 ** age.clamp(min=0)
        last = ids.gather(1, (rows.total_len - 1).unsqueeze(1))
        value = faded.gather(1, (rows.total_len - 1).unsqueeze(1))
        return logits.scatter_(1, torch.where(kept, ids, last), torch.where(kept, faded, value))
