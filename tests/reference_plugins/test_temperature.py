"""lpkit-temperature against text-generation-webui's formulas, one row at a time in float64."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit_temperature import Temperature
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of


def dynamic(row: torch.Tensor, low: float, high: float, exponent: float) -> torch.Tensor:
    shares = row.softmax(-1)
    entropy = -torch.where(shares > 0, shares * shares.log(), 0.0).sum()
    most = math.log(int((row > -math.inf).sum()))
    return row / (low + (high - low) * (entropy / most) ** exponent)


def smooth(row: torch.Tensor, factor: float, curve: float) -> torch.Tensor:
    difference = row - row.max()
    k, s = (3 - curve) / 2, (curve - 1) / 2
    bent = -(k * factor * difference**2) + (s * factor * difference**3) + row.max()
    return torch.where(row > -math.inf, bent, row)


CASES = [
    (0.5, 2.0, 1.0, 0.0, 1.0),
    (0.1, 5.0, 0.5, 0.0, 1.0),
    (1.0, 1.3, 3.0, 0.0, 1.0),
    (1.0, 1.0, 1.0, 0.3, 1.0),
    (1.0, 1.0, 1.0, 2.0, 1.7),
    (0.7, 1.5, 1.0, 0.2, 3.0),
]
ORACLE = "text-generation-webui's formulas in float64"
KEYS = ("low", "high", "exponent", "smoothing", "curve")


@ON_EVERY_HOST
@pytest.mark.parametrize("vocab", [100, 20_000])
def test_the_shares_are_those_of_the_published_formulas(applied: Applied, vocab: int) -> None:
    asked = [
        Asked({f"temperature_{key}": value for key, value in zip(KEYS, case, strict=True)}, temperature=0.4 + 0.2 * i)
        for i, case in enumerate(CASES)
    ]
    logits = logits_of(len(asked), vocab)
    logits[:, ::7] = -math.inf
    result = applied(Temperature, logits, asked).double()
    for row, (low, high, exponent, factor, curve) in enumerate(CASES):
        expected = dynamic(logits[row].double(), low, high, exponent)
        if factor:
            expected = smooth(expected, factor, curve)
        ours, theirs = result[row].log_softmax(-1), expected.log_softmax(-1)
        agree(ours, theirs, ORACLE, "logarithms of shares", within=2e-6, relative=True)


@ON_EVERY_HOST
def test_the_order_of_the_tokens_stays(applied: Applied) -> None:
    asked = [Asked({"temperature_smoothing": 0.01, "temperature_curve": 1.0 + i / 8}) for i in range(17)]
    logits = logits_of(len(asked), 500)
    logits[:, 1] = logits.amax(1) - 1e-3
    result = applied(Temperature, logits, asked)
    assert torch.equal(result.argmax(1), logits.argmax(1))
    assert (result.gather(1, logits.argsort(1)).diff(dim=1) >= 0).all()
