"""The tournament kernels compute what the torch path does; here under Triton's interpreter, so no GPU is needed."""

from __future__ import annotations

from interpreted import interpret

COMPARE = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import triton_tournament as fused

rows, vocab, extra, rounds = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
logits = torch.randn(rows, vocab + extra, generator=generator) * 3
logits[:, 1::9] = -math.inf
given, behind = logits[:, :vocab], logits[:, vocab:].clone()
bits = torch.randint(0, 2, (500 + vocab,), generator=generator).float()
bits = torch.cat((bits, torch.zeros(vocab)))
starts = torch.randint(0, 500, (rounds, rows), generator=generator).t()
seeds = torch.randint(0, 500, (rows, 2), generator=generator)[:, :1]
shifts = (starts - seeds) % 500
seeds[-1] = shifts[0, 4:] = -1
starts[-1] = starts[0, 4:] = 500 + vocab
temperature = torch.linspace(0.3, 2.0, rows).unsqueeze(1)

# In float64, and by what loses: little else shows a token that loses nearly everywhere.
shares = (given.double() / temperature.double()).softmax(1)
gain = torch.ones_like(shares)
for start in starts.unbind(1):
    wins = bits.double().unfold(0, vocab, 1)[start]
    lost = torch.where((wins * shares).sum(1, keepdim=True) > 0, ((1 - wins) * shares).sum(1, keepdim=True), 1.0)
    shares, gain = shares * (wins + lost), gain * (wins + lost)
    shares /= shares.sum(1, keepdim=True)
exact = given.double() + temperature * gain.clamp(min=torch.finfo(torch.float32).tiny).log()

before = given.clone()
if rounds < 4:
    torch.testing.assert_close(kernels.tournament_(given.clone(), temperature, bits, seeds, shifts), exact.float())
assert fused.tournament_(given, temperature, bits, seeds, shifts) is given
torch.testing.assert_close(given.double(), exact, rtol=1e-5, atol=1e-5)
assert torch.equal(given[-1], before[-1])
assert torch.equal(logits[:, vocab:], behind)
"""


def test_tokens_gain_what_they_gain_in_float64_however_many_rounds() -> None:
    interpret(COMPARE, (1, 5, 0, 1), (3, 300, 8, 3), (2, 4500, 0, 5), (2, 700, 3, 13))
