"""lpkit-min-p against transformers' MinPLogitsWarper and against the definition, on both runners."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit_min_p import MinP
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked

VOCAB = 512
THRESHOLDS = [0.001, 0.05, 0.1, 0.5, 0.999, 1.0]


def asked(thresholds: list[float], temperatures: list[float]) -> list[Asked]:
    return [Asked({"min_p_threshold": p}, temperature=t) for p, t in zip(thresholds, temperatures, strict=True)]


def random_logits(seed: int, rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_it_keeps_what_transformers_keeps(
    applied: Applied, seed: int, temperature: float, transformers_rules: Any
) -> None:
    logits = random_logits(seed, len(THRESHOLDS))
    result = applied(MinP, logits / temperature, asked(THRESHOLDS, [temperature] * len(THRESHOLDS)))
    for row, threshold in enumerate(THRESHOLDS):
        scaled = logits[row : row + 1] / temperature
        expected = transformers_rules.MinPLogitsWarper(threshold)(None, scaled.clone())[0]
        # Both round; only a token on the very threshold may be seen differently.
        doubtful = (scaled[0] - scaled.max() - math.log(threshold)).abs() < 1e-5
        assert doubtful.sum() <= 1 + (threshold == 1.0)
        agree(result[row][~doubtful], expected[~doubtful], "transformers' MinPLogitsWarper")


@ON_EVERY_HOST
def test_every_row_has_a_temperature_of_its_own(applied: Applied) -> None:
    logits = random_logits(99, 4)
    temperature = torch.tensor([[0.1], [0.7], [1.0], [2.0]])
    result = applied(MinP, logits / temperature, asked([0.1] * 4, temperature.flatten().tolist()))
    shares = torch.softmax(logits.double() / temperature.double(), -1)
    kept = shares >= 0.1 * shares.amax(-1, keepdim=True)
    agree(result > -math.inf, kept, "the definition in float64", "which tokens stay")
    assert kept.sum(-1).tolist() == sorted(kept.sum(-1).tolist())  # hotter keeps more
