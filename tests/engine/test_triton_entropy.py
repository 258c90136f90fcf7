"""Temperatures that follow the entropy, by kernels, are those of the torch path; here under Triton's interpreter, so no
GPU is needed."""

from __future__ import annotations

from interpreted import interpret

COMPARE = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import triton_limits as fused

rows, vocab, extra = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
logits = torch.randn(rows, vocab + extra, generator=generator) * 3 + 100
logits[:, 1] = -math.inf
if rows > 2:
    logits[0, : vocab - 1] = -math.inf  # one token is left
    logits[1, :vocab] = -math.inf
given, behind = logits[:, :vocab], logits[:, vocab:].clone()
temperature = torch.linspace(0.3, 2.0, rows).unsqueeze(1)

before = given.clone()
def spread(low, high):
    return torch.linspace(low, high, 2 * rows).view(rows, 2)[:, :1]
for smoothing, curve in ((0.0, 1.0), (0.3, 1.0), (0.2, 2.5)):
    shape = (spread(0.5, 3.0), spread(0.0, smoothing), spread(1.0, curve))
    per_row = (temperature, spread(0.3, 1.0), spread(1.0, 3.0), *shape)
    expected = kernels.dynamic_temperature_(before.clone(), *per_row)
    given.copy_(before)
    assert fused.dynamic_temperature_(given, *per_row) is given
    torch.testing.assert_close(given, expected, rtol=2e-5, atol=2e-5)
    assert torch.equal(logits[:, vocab:], behind)
per_row = (temperature, *[torch.ones(rows, 1)] * 3, torch.zeros(rows, 1), torch.ones(rows, 1))
given.copy_(before)
plain = kernels.dynamic_temperature_(before.clone(), *per_row, by_entropy=False, smoothed=False)
torch.testing.assert_close(fused.dynamic_temperature_(given, *per_row), plain, rtol=2e-5, atol=2e-5)
"""


def test_temperatures_are_those_of_the_torch_path() -> None:
    interpret(COMPARE, (1, 5, 0), (4, 300, 8), (1, 9000, 3))
