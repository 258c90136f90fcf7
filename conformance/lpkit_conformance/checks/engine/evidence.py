"""Answers of an engine, and the comparison of rows of logits.

The engine's model does not round (:mod:`lpkit_conformance.engine.model`): a request's logits are the same bits in any
batch, and any difference is the plugin's. Only the plugin's own sums may round: so small a difference is counted, not
blamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lpkit_conformance.checks.engine.asks import Answer, Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Expected:
    """One request in the reference runtime, for the tokens that the engine chose. Both ``[tokens, vocab]``.

    Attributes:
        rows: processed logits.
        plain: the same without the plugin.
    """

    rows: Rows
    plain: Rows

    @property
    def acted(self) -> bool:
        """True if the plugin changed a logit."""
        return not np.array_equal(self.rows, self.plain, equal_nan=True)


@dataclass(frozen=True)
class RowDifference:
    """The first entry of a request's rows that is not what it should be."""

    position: int
    token: int
    expected: float
    got: float
    kind: str  # of lpkit_conformance.explanation.findings.CAUSES


@dataclass
class Evidence:
    """Answers and expectations of one runner.

    Attributes:
        alone, mixed: answers with processed logits, by request.
        company: answers of the requests that were served beside those with bad arguments.
        refused: answers of the latter.
        drafted: answers of the workload's requests for an engine with drafts.
        drafts: number of tokens that were drafted there.
        undrafted: why there is no such engine.
        expected: the requests of ``mixed`` and ``drafted``, with their tokens, in the reference runtime.
        location: ``file:line`` where the plugin gets new requests.
    """

    host: str
    workload: Workload
    alone: dict[str, Answer] = field(default_factory=dict)
    mixed: dict[str, Answer] = field(default_factory=dict)
    company: dict[str, Answer] = field(default_factory=dict)
    refused: dict[str, Answer] = field(default_factory=dict)
    drafted: dict[str, Answer] = field(default_factory=dict)
    drafts: int = 0
    undrafted: str = ""
    expected: dict[str, Expected] = field(default_factory=dict)
    location: str = ""

    @property
    def acted(self) -> bool:
        return any(item.acted for item in self.expected.values())

    def tokens(self) -> dict[str, list[int]]:
        """Output of the requests that ran to their end, in the batch or, for an engine with drafts, alone."""
        drafted = {ask.request_id: self.alone[ask.request_id] for ask in self.workload.drafted}
        answers = {**self.mixed, **drafted}
        return {name: answer.token_ids for name, answer in answers.items() if answer.rows is not None}


class Tally:
    """Numbers of positions that were compared, and of those that agree bit for bit.

    ``untouched_exact``: rows that the plugin is expected to leave alone must be the same bits; the built-in stages of
    the engine and of the reference runtime may round differently.
    """

    def __init__(self, untouched_exact: bool = True) -> None:
        self.positions = self.exact = 0
        self._untouched_exact = untouched_exact

    def compare(self, got: Rows, wanted: Rows, plain: Rows) -> RowDifference | None:
        """First entry of ``got`` that departs from ``wanted`` beyond rounding; all are ``[n, vocab]``.

        ``plain``: the rows without the plugin.
        """
        import torch

        from lpkit_conformance.expectation.compare import first_difference

        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        self.positions += len(got)
        self.exact += int(same.all(1).sum())
        if same.all():
            return None
        before, expected, after = (torch.from_numpy(np.ascontiguousarray(item)) for item in (plain, wanted, got))
        difference = first_difference(before, expected, after, exact_rows=self._untouched_exact)
        return None if difference is None else RowDifference(*difference)

    def __str__(self) -> str:
        exact = "" if self.exact == self.positions else f"{self.exact} of them "
        return f"{self.positions} positions, {exact}bit for bit"


def common(first: list[int], second: list[int]) -> int:
    """Number of positions that two answers share: the tokens before the position are the same."""
    equal = 0
    for left, right in zip(first, second, strict=False):
        equal += 1
        if left != right:
            break
    return equal
