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


def test_a_token_stays_by_the_likeliest_one_or_by_the_entropy_and_the_likeliest_always_does() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1)) * rows(0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
    logits[:, 7] = -math.inf
    temperature = rows(0.5, 0.7, 1.0, 1.2, 1.5, 2.0)
    log_least, by_top = rows(-1.0, -4.0, -5.0, 1.0, -math.inf, -5.0), rows(0.0, 0.0, 1.0, 0.0, 0.0, 2.0)
    by_entropy = rows(-1.0, math.inf, -0.5, math.inf, 1.0, -3.0)
    shares = (logits.double() / temperature).softmax(1)
    top, entropy = shares.amax(1, keepdim=True), torch.special.entr(shares).sum(1, keepdim=True)
    limit = torch.minimum(log_least + by_top * top.log(), by_entropy - entropy).exp()
    expected = logits.masked_fill((shares < limit) & (shares < top), -math.inf)
    masked = (expected == -math.inf).sum(1).tolist()
    assert masked[3] == 49 and masked[4] == 1 and min(masked[:3] + masked[5:]) > 1, masked
    result = kernels.mask_unlikely_(logits, temperature, log_least, by_top, by_entropy)
    assert result is logits and torch.equal(result, expected)
