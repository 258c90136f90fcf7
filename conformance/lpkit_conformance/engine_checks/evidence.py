"""What an engine answered, and how rows of logits are compared although the model itself rounds.

The model's logits of a request depend a little on which rows were computed with it. So rows are compared within what
the plugin makes of such differences, and a token whose mask hangs on them is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lpkit_conformance.engine.tiny import Answer
from lpkit_conformance.engine_checks.workload import Workload

NOISE = 2e-5
"""Of a row's largest logit: more than float32 makes of another batch or of a prompt in other pieces."""

MOST_UNSTABLE = 0.5
"""A row of which a greater part hangs on the noise is not judged."""


@dataclass(frozen=True)
class Expected:
    """One request in the reference runtime, for the tokens that the engine chose. All ``[tokens, vocab]``.

    Attributes:
        rows: processed logits.
        plain: the same without the plugin.
        stable: bool, where masked or not does not hang on the model's rounding.
        spread: how far that rounding moves the processed logits.
    """

    rows: Any
    plain: Any
    stable: Any
    spread: Any

    @property
    def acted(self) -> bool:
        """Whether the plugin changed a logit."""
        return not np.array_equal(self.rows, self.plain, equal_nan=True)


@dataclass(frozen=True)
class Difference:
    """The first entry of a request's rows that is not what it should be."""

    position: int
    token: int
    expected: float
    got: float
    kind: str  # of lpkit_conformance.oracle.findings.CAUSES


@dataclass
class Evidence:
    """Of one runner.

    Attributes:
        alone, mixed: answers with processed logits, by request.
        company: answers of the requests that were served beside those with bad arguments.
        refused: answers of the latter.
        raw: the model's logits for the tokens of ``mixed``, from an engine without the plugin.
        expected: the same through the reference runtime.
        location: ``file:line`` where the plugin gets new requests.
    """

    host: str
    workload: Workload
    alone: dict[str, Answer] = field(default_factory=dict)
    mixed: dict[str, Answer] = field(default_factory=dict)
    company: dict[str, Answer] = field(default_factory=dict)
    refused: dict[str, Answer] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    location: str = ""

    @property
    def acted(self) -> bool:
        return any(item.acted for item in self.expected.values())

    def tokens(self) -> dict[str, list[int]]:
        """What the requests generated that ran to their end."""
        return {name: answer.token_ids for name, answer in self.mixed.items() if answer.rows is not None}


def common(first: list[int], second: list[int]) -> int:
    """How many positions two answers share: the tokens before the position are the same."""
    equal = 0
    for one, other in zip(first, second, strict=False):
        equal += 1
        if one != other:
            break
    return equal


def difference(got: Any, wanted: Any, expected: Expected) -> Difference | None:
    """Where ``got`` departs from ``wanted`` (both ``[n, vocab]``) beyond what the model's rounding explains."""
    n = len(got)
    plain, stable, spread = expected.plain[:n], expected.stable[:n], expected.spread[:n]
    scale = np.maximum(np.where(np.isfinite(plain), np.abs(plain), 0).max(1, keepdims=True, initial=0), 1.0)
    allowed = 4 * spread + 2 * NOISE * scale
    with np.errstate(invalid="ignore"):
        close = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.abs(got - wanted) <= allowed)
    wrong = stable & ~close
    wrong[(~stable).mean(1) > MOST_UNSTABLE] = False
    if not wrong.any():
        return None
    row = int(wrong.any(1).argmax())
    with np.errstate(invalid="ignore"):
        distance = np.nan_to_num(np.abs(got[row] - wanted[row]), nan=1e30, posinf=1e30)
    gap = np.where(wrong[row], distance, -1.0)
    token = int(gap.argmax())
    return Difference(
        row, token, float(wanted[row, token]), float(got[row, token]), _kind(got, wanted, plain, allowed, row)
    )


def _kind(got: Any, wanted: Any, plain: Any, allowed: Any, row: int) -> str:
    def same(values: Any) -> bool:
        with np.errstate(invalid="ignore"):
            near = (values[row] == plain[row]) | (np.abs(values[row] - plain[row]) <= allowed[row])
        return bool(near.all())

    return "stale" if same(wanted) else "lost" if same(got) else "wrong"
