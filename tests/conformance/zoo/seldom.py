"""Rules that act only where several arguments have values that suit each other; without a case, lpkit finds some."""

from __future__ import annotations

import lpkit
import torch
from lpkit import kernels, rng, sequences
from lpkit.sampling_params import SamplingParams

from zoo.registry import defect, sound


@sound("acts often only with a high probability and a low threshold together", "portable", case={})
class Chance(lpkit.LogitsProcessor):
    """Lowers the best token of some steps, if there is a second one above the threshold."""

    stage = "sampling"
    history = "length"

    class Params(lpkit.Params, prefix="chance_"):
        probability: float = lpkit.Field(ge=0.0, le=1.0)
        threshold: float = lpkit.Field(0.4, gt=0.0, le=1.0)
        seed: int | None = None

    probability = lpkit.column(torch.float32)
    threshold = lpkit.column(torch.float32)
    seed = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.probability[request.slot] = request.params.probability
        self.threshold[request.slot] = request.params.threshold
        self.seed[request.slot] = request.params.seed or 0
        return request.params.probability > 0.0

    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return self.threshold[rows]

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        drawn = rng.uniform(self.seed[rows], rows.total_len) < self.probability[rows]
        best = torch.softmax(logits / rows.temperature, -1).topk(2)
        due = drawn & (best.values[:, 1] >= self.least(rows))
        return logits.scatter_add_(1, best.indices[:, :1], -rows.temperature * due.unsqueeze(1))


@defect("LP201", "compares with the least threshold of the batch", case={}, style="portable")
class ChanceLeast(Chance):
    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return super().least(rows).amin().expand(rows.slots.shape[0])


@defect("LP109", "fails in every step, and no case is given that would tell", case={}, style="portable")
class ChanceMistyped(Chance):
    def least(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.threshold  # type: ignore[attr-defined,no-any-return]


@defect("LP103", "compares before it knows the type, and no case names the argument", case={}, style="portable")
class ChanceCompared(Chance):
    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        if (params.extra_args or {}).get("chance_probability", 0.0) > 1.0:
            raise ValueError("chance_probability is a share")
        super().validate_params(params)


@sound("acts between two markers only, which must be different tokens", "portable", case={})
class Between(lpkit.LogitsProcessor):
    """Forces the token that closes what another one opened, once so many tokens stand between them."""

    history = "tokens"

    class Params(lpkit.Params, prefix="between_"):
        most: int = lpkit.Field(ge=0)
        opens: lpkit.TokenId
        closes: lpkit.TokenId

    most = lpkit.column(torch.int64)
    opens = lpkit.column(torch.int64)
    closes = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.most[request.slot] = request.params.most
        self.opens[request.slot] = request.params.opens
        self.closes[request.slot] = request.params.closes
        return True

    def due(self, rows: lpkit.Rows) -> torch.Tensor:
        opened = sequences.end_of_last(rows.tokens, self.opens[rows].unsqueeze(1))
        closed = sequences.end_of_last(rows.tokens, self.closes[rows].unsqueeze(1))
        return (opened > closed) & (rows.total_len - opened >= self.most[rows])

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.keep_ids_(logits, self.closes[rows].unsqueeze(1), self.due(rows).unsqueeze(1))


@defect("LP201", "closes all requests' texts where one of them is due", case={}, style="portable")
class BetweenAny(Between):
    def due(self, rows: lpkit.Rows) -> torch.Tensor:
        return super().due(rows).any().expand(rows.slots.shape[0])
