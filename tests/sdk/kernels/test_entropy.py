"""A temperature that follows the entropy, worked out in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
from lpkit import kernels


def rows(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def retempered(logits: torch.Tensor, smoothing: float = 0.0, **left_out: Any) -> torch.Tensor:
    n = logits.shape[0]
    per_row = [torch.full((n, 1), value) for value in (0.8, 0.5, 2.0, 1.5, smoothing, 2.0)]
    return kernels.dynamic_temperature_(logits.clone(), *per_row, **left_out)


def test_the_temperature_lies_between_low_and_high_as_the_entropy_does_between_none_and_the_most() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1)) * rows(0.1, 1.0, 5.0)
    logits[:, 7] = -math.inf
    shares = (logits.double() / 0.8).softmax(1)
    share = torch.special.entr(shares).sum(1, keepdim=True) / math.log(49)
    expected = (logits - logits.amax(1, keepdim=True)).double() / (0.5 + 1.5 * share**1.5)
    torch.testing.assert_close(retempered(logits, smoothed=False).double(), expected, rtol=1e-5, atol=1e-5)
    below = expected / 0.8
    bent = (0.3 * (0.5 * below.square() * -1 + 0.5 * below**3)).masked_fill(logits == -math.inf, -math.inf) * 0.8
    torch.testing.assert_close(retempered(logits, smoothing=0.3).double(), bent, rtol=1e-5, atol=1e-5)


def test_a_masked_row_and_a_row_with_one_token_stay() -> None:
    logits = torch.full((2, 3), -math.inf)
    logits[1, 2] = 4.0
    expected = logits.clone()
    expected[1, 2] = 0.0
    assert torch.equal(retempered(logits, smoothing=0.3), expected)
