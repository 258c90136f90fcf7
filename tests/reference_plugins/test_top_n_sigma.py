"""lpkit-top-n-sigma against the closed form in float64."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit_top_n_sigma import TopNSigma
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

SIGMAS = [0.0, 0.3, 1.0, 1.5, 2.5, 4.0]


def closed_form(row: torch.Tensor, n: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(which tokens stay, which are too close to the threshold to tell)."""
    finite = row[row > -math.inf].double()
    lowest = finite.max() - n * finite.std(correction=0)
    return row >= lowest, (row - lowest).abs() < 1e-4


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("masked", [0.0, 0.9])
def test_it_keeps_what_the_definition_keeps(applied: Applied, seed: int, masked: float) -> None:
    vocab = 20_000  # more than one chunk
    logits = logits_of(len(SIGMAS), vocab, seed) - 20
    hidden = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < masked
    logits = logits.masked_fill(hidden, -math.inf)
    requests = [Asked({"top_n_sigma": n}, temperature=0.4 + 0.3 * i) for i, n in enumerate(SIGMAS)]
    result = applied(TopNSigma, logits, requests)
    for row, n in enumerate(SIGMAS):
        expected, doubtful = closed_form(logits[row], n)
        assert doubtful.sum() < 20
        kept = result[row] > -math.inf
        agree(kept[~doubtful], expected[~doubtful], "the definition in float64", "which tokens stay")
        assert 0 < expected.sum() < vocab


@ON_EVERY_HOST
def test_the_temperature_does_not_matter(applied: Applied) -> None:
    logits = logits_of(1, 512, 5).expand(4, -1).clone()
    requests = [Asked({"top_n_sigma": 1.2}, temperature=t) for t in (0.25, 0.5, 1.0, 2.0)]
    kept = applied(TopNSigma, logits / torch.tensor([[a.temperature] for a in requests]), requests) > -math.inf
    assert (kept == kept[0]).all()
