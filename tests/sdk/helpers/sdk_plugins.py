"""Processors that the tests drive on both hosts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit.sampling_params import SamplingParams


class Add(lpkit.LogitsProcessor):
    """Adds the request's number to its whole row."""

    class Params(lpkit.Params):
        add: float

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.add
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + self.amount[rows].unsqueeze(1)


class AddInPlace(Add):
    """The same, in place."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.add_(self.amount[rows].unsqueeze(1))


class MinP(lpkit.LogitsProcessor):
    """Keeps what is at least `floor` times as likely as the most likely token."""

    stage = "sampling"

    class Params(lpkit.Params):
        floor: float = lpkit.Field(ge=0.0, le=1.0)

    log_floor = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        if not request.params.floor:
            return False
        self.log_floor[request.slot] = math.log(request.params.floor)
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        lowest = logits.amax(-1, keepdim=True) + rows.temperature * self.log_floor[rows].unsqueeze(1)
        return logits.masked_fill_(logits < lowest, -math.inf)


class Temper(lpkit.LogitsProcessor):
    """Adds the temperature still to come."""

    class Params(lpkit.Params):
        temper: bool

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + rows.temperature


class TemperAtSampling(Temper):
    stage = "sampling"


class Lengths(lpkit.LogitsProcessor):
    """Writes prompt, total and output length over the first three logits."""

    history = "length"

    class Params(lpkit.Params):
        lengths: bool

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, :3] = torch.stack((rows.prompt_len, rows.total_len, rows.output_len), 1).to(logits.dtype)
        return logits


class Weigh(lpkit.LogitsProcessor):
    """Sparse: prompt tokens lose 1, generated ones 2; records the history it was shown."""

    history = "tokens"

    class Params(lpkit.Params):
        weigh: bool

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shown: dict[int, list[int]] = {}
        self.widths: list[int] = []

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        tokens = rows.tokens
        self.widths.append(tokens.shape[1])
        produced = torch.zeros(rows.n, VOCABULARY).scatter_add_(1, tokens.clamp(min=0), rows.is_output.float()) > 0
        cost = 1 + produced.gather(1, tokens.clamp(min=0)).float()
        logits[tokens] = logits[tokens] - cost


VOCABULARY = 32


class Spy(Weigh):
    """Weigh, which also keeps what it was shown (and so waits for the device, as no real one may)."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        super().edit(logits, rows)
        for row, ids in zip(rows.index.tolist(), rows.tokens.tolist(), strict=True):
            self.shown[row] = [token for token in ids if token >= 0]


def weighed(logits: torch.Tensor, prompt: list[int], output: list[int]) -> torch.Tensor:
    """Compute Weigh's result for one row, in plain Python."""
    result = logits.clone()
    for token in {*prompt, *output}:
        result[token] = logits[token] - (2 if token in output else 1)
    return result


class Calls(lpkit.AdapterLogitsProcessor):
    """Weigh by a callable for each request, in place, which adds the request's number, too."""

    Params = Add.Params

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        own = self.params(params)
        return own and (lambda prompt, output, logits: logits.copy_(weighed(logits, prompt, output) + own.add))
