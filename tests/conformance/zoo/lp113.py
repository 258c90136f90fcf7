"""Defects that LP113 must catch."""

from __future__ import annotations

import lpkit
import torch

from zoo.arguments import VOCAB
from zoo.correct.portable import PortableBias
from zoo.registry import defect


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


@defect("LP113", "accepts lists that its column does not hold", case={"extra_args": {"listed_tokens": [3, 7]}})
class ListsWithoutLimit(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="listed_"):
        tokens: list[lpkit.TokenId] = lpkit.Field(min_length=1)

    tokens = lpkit.ragged(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.tokens[request.slot] = request.params.tokens
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.tokens[rows]] = logits[self.tokens[rows]] - 5.0
