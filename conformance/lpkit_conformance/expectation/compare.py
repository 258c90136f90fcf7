"""Compares the actual rows with the expected rows, beyond rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from lpkit_conformance.expectation.solo import SoloRuns
from lpkit_conformance.subject.calls import Observation

RELATIVE_TOLERANCE = 2e-5
"""Share of the largest finite input logit: reductions over one row and over many may round differently."""

MOST_TOKENS = 8
"""Most tokens whose logits a finding shows."""

LEAST_SHOWN = 1e-4
"""Share of the largest finite difference in a row; smaller differences are rounding."""


@dataclass(frozen=True)
class Mismatch:
    """A row that is not what it should be."""

    step: int
    row: int
    request: str
    position: int
    token: int
    expected: float
    got: float
    logits: dict[str, Any]  # of the tokens that differ most: the model's, alone and in the batch
    kind: str  # lost: the plugin did not act; stale: it acted where it should not; wrong: it acted differently


def unequal(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the mask of differences between two results; LP306 reports NaN that is in both."""
    return (first != second) & ~(first.isnan() & second.isnan())


def first_row(wrong: torch.Tensor) -> int:
    """The first row of a bool ``[rows, ...]`` that holds a True."""
    return int(wrong.flatten(1).any(1).to(torch.int8).argmax())


def compare(seen: Observation, solo: SoloRuns, only: str = "") -> Mismatch | None:
    """The first row of ``seen``, or of the request ``only``, that departs from its request's solo run."""
    judged = []
    for row, item in enumerate(seen.rows):
        left_out = item.discarded or only not in ("", item.request)
        expected = None if left_out else solo.expected(item.request, item.position)
        if expected is not None:
            judged.append((row, expected))
    if not judged:
        return None
    wanted, got = torch.stack([expected for _, expected in judged]), seen.after
    rows = [row for row, _ in judged]
    if len(rows) < len(got):
        got = got[rows]
    difference = None if torch.equal(wanted, got) else first_difference(seen.before[rows], wanted, got)
    if difference is None:
        return None
    index, token, expected_value, got_value, kind = difference
    row = judged[index][0]
    item = seen.rows[row]
    logits = differing(seen.before[row], judged[index][1], seen.after[row])
    return Mismatch(seen.step, row, item.request, item.position, token, expected_value, got_value, logits, kind)


def differing(before: torch.Tensor, expected: torch.Tensor, got: torch.Tensor) -> dict[str, Any]:
    """``{"differ", "of", "tokens"}`` of one row: how many tokens differ, and the largest differences as texts."""
    gap = (expected - got).abs()
    same = (expected == got) | (expected.isnan() & got.isnan())  # also equal infinities
    least = torch.where(gap.isfinite(), gap, 0.0).max() * LEAST_SHOWN
    gaps = torch.where(same | (gap <= least), 0.0, gap.nan_to_num(nan=1e30, posinf=1e30))
    count = int(gaps.count_nonzero())
    tokens = gaps.topk(min(count, MOST_TOKENS)).indices.tolist()
    values = [[f"{value:g}" for value in row[tokens].tolist()] for row in (before, expected, got)]
    shown = [
        {"token": token, "model": model, "alone": alone, "batch": batch}
        for token, model, alone, batch in zip(tokens, *values, strict=True)
    ]
    return {"differ": count, "of": len(gap), "tokens": shown}


def first_difference(
    before: torch.Tensor, expected: torch.Tensor, got: torch.Tensor, exact_rows: bool = True
) -> tuple[int, int, float, float, str] | None:
    """(row, token, expected, got, kind) of the first row that differs beyond rounding, else None.

    ``exact_rows``: rows that the plugin is expected to leave alone must come back bit for bit.
    """
    if torch.equal(expected, got):
        return None
    finite = torch.where(torch.isfinite(before), before.abs(), 0)
    allowed = RELATIVE_TOLERANCE * finite.amax(1, keepdim=True).clamp(min=1.0)
    same = (expected == got) | ((expected - got).abs() <= allowed) | (expected.isnan() & got.isnan())
    untouched = (expected == before).all(1, keepdim=True)
    bad = torch.where(untouched, expected != got, ~same) if exact_rows else ~same
    if not bool(bad.any()):
        return None
    row = first_row(bad)
    gap = torch.where(bad[row], (expected[row] - got[row]).abs().nan_to_num(posinf=1e30), -1.0)
    token = int(gap.argmax())
    if torch.equal(expected[row], before[row]):
        kind = "stale"
    elif torch.equal(got[row], before[row]):
        kind = "lost"
    else:
        kind = "wrong"
    return row, token, float(expected[row, token]), float(got[row, token]), kind
