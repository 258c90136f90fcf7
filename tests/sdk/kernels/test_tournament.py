"""Probabilities after a tournament, computed by hand and by playing it."""

from __future__ import annotations

import math

import torch
from lpkit import kernels

BITS = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])


def shares_after(shares: list[float], starts: list[int], temperature: float = 1.0) -> list[float]:
    logits = torch.tensor([shares]).log() * temperature
    kernels.tournament_(logits, torch.tensor([[temperature]]), BITS, torch.tensor([[0]]), torch.tensor([starts]))
    return [round(share, 4) for share in (logits / temperature).softmax(1)[0].tolist()]


def test_a_winner_gains_what_loses() -> None:
    assert shares_after([0.25, 0.25, 0.5], [0]) == [0.4375, 0.1875, 0.375]
    assert shares_after([0.25, 0.25, 0.5], [0], temperature=2.0) == [0.4375, 0.1875, 0.375]
    assert shares_after([0.25, 0.25, 0.5], [0, 1]) == [0.2734, 0.1172, 0.6094]


def test_a_round_that_is_not_held_changes_nothing() -> None:
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    seeds, shifts = torch.tensor([[-1], [0]]), torch.tensor([[0], [-1]])
    assert torch.equal(kernels.tournament_(logits, torch.ones(2, 1), BITS, seeds, shifts), before)


def test_rows_have_rounds_of_their_own_and_masked_tokens_stay_masked() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]]).repeat(2, 1)
    kernels.tournament_(logits, torch.ones(2, 1), BITS, torch.tensor([[1], [0]]), torch.tensor([[1], [1]]))
    torch.testing.assert_close(logits.softmax(1), torch.tensor([[0.75, 0.0, 0.25], [0.25, 0.0, 0.75]]))
