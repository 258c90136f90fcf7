"""Defects that LP113 must catch."""

from __future__ import annotations

import functools
from typing import Any

import lpkit
import torch

from zoo.arguments import VOCAB
from zoo.bases import Simple
from zoo.correct.portable import PortableBias
from zoo.correct.v1 import V1Base
from zoo.registry import defect, sound


@defect("LP113", "looks at the prompt, which is not there on V2 and for embeddings")
class MeasuresPrompt(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return len(request.prompt_token_ids or ()) + request.prompt_token_ids[0] >= 0  # type: ignore[index]


@defect("LP113", "takes the logarithm of a temperature that greedy requests do not have")
class DividesByTemperature(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return 1 / request.sampling_params.temperature > 0


@defect("LP113", "a table in which not every id has an entry")
class ShortTable(PortableBias):
    TABLE = dict.fromkeys(range(VOCAB - 1), 1.0)

    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return self.TABLE[request.params.token] > 0


@sound("lpkit refuses lists that the column of their name does not hold")
class ListsOfTheColumn(lpkit.LogitsProcessor):
    CASE = {"extra_args": {"listed_tokens": [3, 7]}}

    class Params(lpkit.Params, prefix="listed_"):
        tokens: list[lpkit.TokenId] = lpkit.Field(min_length=1)

    tokens = lpkit.ragged(torch.int64)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.tokens[rows]] = logits[self.tokens[rows]] - 5.0


@defect("LP113", "accepts lists that its column does not hold")
class ListsWithoutLimit(ListsOfTheColumn):
    def admit(self, request: lpkit.Request) -> bool:
        self.tokens[request.slot] = sorted(request.params.tokens)
        return True


class VllmsAdapter(V1Base):
    """Takes its callables as vLLM's ``AdapterLogitsProcessor`` does."""

    CASE = {"extra_args": {"bias": 2.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        made = self.new_req_logits_processor(params)
        return functools.partial(made, outputs) if made else None

    def new_req_logits_processor(self, params: Any) -> Any:
        bias = self.read(params)
        return None if bias is None else WithALength(bias)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, call in self.rows.items():
            logits[row] = call(logits[row])
        return logits


class WithALength(list[int]):
    """A callable with a length."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.bias = bias

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        edited = logits.clone()
        edited[5] += self.bias
        return edited


class TrueWithALength(WithALength):
    def __bool__(self) -> bool:
        return True


@defect("LP113", "makes callables with a length of 0, which vLLM's adapter takes for None")
class MakesFalseCallables(VllmsAdapter):
    pass


@sound("makes callables with a length that are true")
class MakesTrueCallables(VllmsAdapter):
    def new_req_logits_processor(self, params: Any) -> Any:
        bias = self.read(params)
        return None if bias is None else TrueWithALength(bias)


@defect("LP113", "takes the output for the prompt", line="def apply(", fix="name them in the order")
class NamedTheWrongWay(Simple):
    def make(self, amount: float, params: Any) -> Any:
        def apply(output_ids: list[int], prompt_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1] % VOCAB] -= amount
            return logits

        return apply


@defect(
    "LP113",
    "accepts numbers that its column does not hold",
    case={"extra_args": {"small_seed": 5}},
    fix="torch.int64",
)
class SmallColumn(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="small_"):
        seed: int

    state = lpkit.column(torch.int32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.state[request.slot] = request.params.seed
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = (3 + self.state[rows] % 7).unsqueeze(1).long()
        logits[ids] = logits[ids] - 5.0


@defect(
    "LP113",
    "divides by a difference that is 0, and no case is given",
    case={},
    line="1.0 / (",
    cause="`request.params.token - request.params.token` is 0; the line divides",
)
class DividesByADifference(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return 1.0 / (request.params.token - request.params.token) > request.slot


@defect("LP113", "forgets to answer, and no case is given", case={}, fix="end `admit` with `return True`")
class ForgetsToAnswer(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:  # type: ignore[return]
        super().admit(request)


@defect(
    "LP113",
    "takes a row and the parameters, as other methods do",
    case={},
    line="def admit(",
    fix="`admit` takes the request alone",
)
class TakesRowAndParams(PortableBias):
    def admit(self, row: int, params: Any) -> bool:  # type: ignore[override]
        return row >= 0


@defect("LP113", "accepts a level that its table lacks", case={}, line="STEPS[request", fix="bound the argument in")
class OneLevelMore(lpkit.LogitsProcessor):
    STEPS = (0.5, 1.0, 2.0, 4.0)

    class Params(lpkit.Params, prefix="step_"):
        level: int = lpkit.Field(ge=0, le=4)

    step = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.step[request.slot] = self.STEPS[request.params.level]
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 2] += self.step[rows]
        return logits
