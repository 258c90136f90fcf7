"""Pairs of processors, each correct alone. In one engine, either one of them breaks a rule or both are correct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import lpkit
import torch
from lpkit.v1 import BatchUpdate
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.suite.pairs import PairSession

from zoo.arguments import INF, token
from zoo.correct.portable import PortableMinP
from zoo.correct.v1 import Bias


@dataclass(frozen=True)
class PairOf:
    """Two processors.

    Attributes:
        code: of the check that must catch what is wrong; empty: nothing is.
        blamed: the one at fault.
    """

    first: Any
    second: Any
    what: str
    code: str = ""
    blamed: Any = None

    @property
    def id(self) -> str:
        return f"{self.code or 'correct'}-{self.first.__name__}-{self.second.__name__}"

    def session(self, seed: int = 0, **settings: Any) -> PairSession:
        """Its checks."""
        plan = Plan(seed=seed, **settings)
        one, other = (
            Session(cls.__name__, cls, replace(plan, cases=(Case.parse(cls.CASE),)))
            for cls in (self.first, self.second)
        )
        return PairSession(one, other, plan)

    def results(self, seed: int = 0, **settings: Any) -> list[CheckResult]:
        """Results of the checks of a pair."""
        return list(self.session(seed, **settings).results())


PAIRS: list[PairOf] = []
CORRECT_PAIRS: list[PairOf] = []


def beside(other: Any, code: str, what: str) -> Callable[[Any], Any]:
    """Class decorator: in an engine with ``other``, the class breaks the rule ``code``."""

    def note(cls: Any) -> Any:
        PAIRS.append(PairOf(other, cls, what, code, cls))
        return cls

    return note


# -- sound processors ------------------------------------------------------------------------------------------


class Add(lpkit.LogitsProcessor):
    """Adds to one token."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"mark_token": 5, "mark_amount": 2.0}}

    class Params(lpkit.Params, prefix="mark_"):
        token: lpkit.TokenId
        amount: float = lpkit.Field(1.0, ge=-50.0, le=50.0)

    token = lpkit.column(torch.int64)
    amount = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids, amounts = self.token[rows].unsqueeze(1), self.amount[rows].unsqueeze(1)
        return logits.scatter_add_(1, ids, amounts)


class Only(lpkit.LogitsProcessor):
    """Allows two tokens, without looking at what is masked."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"only_first": 5, "only_second": 9}}

    class Params(lpkit.Params, prefix="only_"):
        first: lpkit.TokenId
        second: lpkit.TokenId

    first = lpkit.column(torch.int64)
    second = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = torch.stack([self.first[rows], self.second[rows]], 1)
        kept = torch.full_like(logits, -INF).scatter_(1, ids, logits.gather(1, ids))
        return logits.copy_(kept)


class Scale(lpkit.LogitsProcessor):
    """Divides logits."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"scale_by": 2.0}}

    class Params(lpkit.Params, prefix="scale_"):
        by: float = lpkit.Field(gt=0.1, le=10.0)

    by = lpkit.column(torch.float32, default=1.0)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.div_(self.by[rows].unsqueeze(1))


class OtherOnly(Only):
    """Allows two other tokens."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"also_first": 7, "also_second": 8}}

    class Params(lpkit.Params, prefix="also_"):
        first: lpkit.TokenId
        second: lpkit.TokenId


class OtherAdd(Add):
    """Adds to another token."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"tag_token": 9, "tag_amount": -3.0}}

    class Params(lpkit.Params, prefix="tag_"):
        token: lpkit.TokenId
        amount: float = lpkit.Field(1.0, ge=-50.0, le=50.0)


class MinP(PortableMinP):
    """A threshold at the sampling stage."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"min_p": 0.2}}


CORRECT_PAIRS += [
    PairOf(Add, OtherAdd, "two sums, in any order"),
    PairOf(Add, Only, "a sum and a mask, in any order"),
    PairOf(Bias, Add, "vLLM's V1 interface beside both"),
]

PAIRS += [
    PairOf(Only, OtherOnly, "two lists that have no token in common", "LP229"),
    PairOf(Add, Scale, "a sum and a factor", "LP230"),
    PairOf(MinP, Add, "a threshold at the sampling stage and a sum", "LP230"),
]

# -- one is wrong beside the other -------------------------------------------------------------------------------


@beside(Add, "LP223", "its prefix begins with the other one's: that one takes its keys for misspelt keys of its own")
class MarkUp(Scale):
    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"mark_up_by": 2.0}}

    class Params(lpkit.Params, prefix="mark_up_"):
        by: float = lpkit.Field(gt=0.1, le=10.0)


class SharedRows(Bias):
    """State by row, kept with the engine's configuration: one processor has it to itself."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.rows = vars(vllm_config).setdefault("family_rows", {})


class FirstOfFamily(SharedRows):
    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"bias": 2.5, "token": 7}}


@beside(FirstOfFamily, "LP224", "both keep their rows in a dict that the configuration holds")
class SecondOfFamily(SharedRows):
    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"second_token": 9}}

    @classmethod
    def read(cls, params: Any) -> Any:
        where = token(params, "second_token")
        return None if where is None else (where, -1.0)


@beside(Add, "LP225", "reads a key that is the other one's")
class SameKey(lpkit.LogitsProcessor):
    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"mark_token": 6}}

    class Params(lpkit.Params):
        mark_token: lpkit.TokenId

    token = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.token[request.slot] = request.params.mark_token
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.scatter_(1, self.token[rows].unsqueeze(1), -INF)


class StepsBack(Bias):
    """Leaves requests to another plugin that is strong enough, and forgets that the row had an occupant."""

    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"bias": 2.5, "token": 7}}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        strong = [row for row, params, *_ in batch_update.added if (params.extra_args or {}).get("scale_by", 0) > 1.9]
        kept = {row: self.rows[row] for row in strong if row in self.rows}
        super().update_state(batch_update)
        for row in strong:
            self.rows.pop(row, None)
        self.rows |= kept


PAIRS.append(
    PairOf(StepsBack, Scale, "a request that is left to the other one gets its row's old state", "LP226", StepsBack)
)


@beside(Only, "LP227", "gives everything back where it finds few tokens")
class Generous(Scale):
    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"generous_by": 2.0}}

    class Params(lpkit.Params, prefix="generous_"):
        by: float = lpkit.Field(gt=0.1, le=10.0)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        few = (logits > -INF).sum(1, keepdim=True) < 4
        logits = super().process(logits, rows)
        return torch.where(few & (logits == -INF), -20.0, logits)


@beside(Only, "LP228", "takes the best tokens away, and the last one as well")
class Greedy(Scale):
    CASE: ClassVar[dict[str, Any]] = {"extra_args": {"greedy_by": 2.0}}

    class Params(lpkit.Params, prefix="greedy_"):
        by: float = lpkit.Field(gt=0.1, le=10.0)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        few = (logits > -INF).sum(1, keepdim=True) < 4
        logits = super().process(logits, rows)
        return logits.masked_fill_(few, -INF)
