"""lpkit-xtc against the original's sorted form in float64, and its rate against the binomial distribution."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit_xtc import Xtc
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

THRESHOLDS = [0.0005, 0.002, 0.01, 0.05, 0.1, 0.3]


def sorted_form(row: torch.Tensor, threshold: float) -> torch.Tensor:
    """Tokens that stay when the random draw removes any: after sorting, all but the last above the threshold go."""
    shares, order = row.double().softmax(-1).sort(descending=True)
    removed = torch.zeros_like(shares, dtype=torch.bool)
    removed[:-1] = shares[1:] >= threshold
    return torch.ones_like(removed).scatter(0, order, ~removed)


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
def test_it_keeps_what_the_sorted_form_keeps(applied: Applied, seed: int) -> None:
    vocab = 20_000  # more than one chunk
    asked = [
        Asked({"xtc_probability": 1.0, "xtc_threshold": t}, temperature=0.3 + 0.3 * i) for i, t in enumerate(THRESHOLDS)
    ]
    logits = logits_of(len(asked), vocab, seed) * 1.5
    result = applied(Xtc, logits, asked)
    dropped = 0
    for row, threshold in enumerate(THRESHOLDS):
        kept = result[row] > -math.inf
        agree(kept, sorted_form(logits[row], threshold), "its sorted form in float64", "which tokens stay")
        dropped += int((result[row] == -math.inf).sum())
    assert dropped > 20


@ON_EVERY_HOST
def test_it_happens_as_often_as_asked(applied: Applied) -> None:
    n = 400
    logits = torch.zeros(n, 4)
    logits[:, 1] = 1.0
    for probability in (0.1, 0.5, 0.9):
        args = {"xtc_probability": probability}
        asked = [Asked({**args, "xtc_seed": i % 20}, output=[2] * (i // 20)) for i in range(n)]
        happened = applied(Xtc, logits, asked)[:, 1] == -math.inf
        deviation = math.sqrt(n * probability * (1 - probability))
        assert abs(int(happened.sum()) - n * probability) < 3.3 * deviation
