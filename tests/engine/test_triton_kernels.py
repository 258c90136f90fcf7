"""The fused kernels compute what the torch path does; here under Triton's interpreter, so no GPU is needed.

In processes of their own: Triton decides when it is imported whether it interprets.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMPARE = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import triton as fused

rows, vocab, extra, name = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
logits = torch.randn(rows, vocab + extra, generator=torch.Generator().manual_seed(7)) * 3
logits[:, 1] = -math.inf
logits[0, 0], logits[-1, vocab - 1] = math.inf, 11.0
limits = torch.linspace(0.0, 2.0, rows).unsqueeze(1)
limits[-1] = math.inf
given, behind = logits[:, :vocab], logits[:, vocab:].clone()
assert fused.suits(given)
expected = getattr(kernels, name)(given.clone(), limits)
result = getattr(fused, name)(given, limits)
assert result is given
assert torch.equal(given.contiguous().view(torch.int32), expected.view(torch.int32)), (given != expected).sum()
assert torch.equal(logits[:, vocab:], behind)
"""

# What is computed of a row, and where the order of summation may show.
STATISTICS = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import triton as fused

rows, vocab, extra = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
logits = torch.randn(rows, vocab + extra, generator=generator) * 3 + 100
logits[:, :2] = -math.inf
given = logits[:, :vocab]
near = dict(rtol=1e-5, atol=1e-5)
temperature = torch.linspace(0.3, 2.0, rows).unsqueeze(1)

limits = torch.linspace(99.0, 103.0, rows).unsqueeze(1)
assert torch.equal(fused.least_from(given, limits), kernels.least_from(given, limits))
assert (fused.least_from(given, limits + 1e9) == math.inf).all()

expected = torch.logsumexp(given.double() / temperature, 1, keepdim=True).float()
torch.testing.assert_close(fused.log_sum_exp(given, temperature), expected, **near)
torch.testing.assert_close(kernels.log_sum_exp(given, temperature), expected, **near)

top, deviation = fused.top_and_deviation(given)
assert torch.equal(top, given.amax(1, keepdim=True))
expected = given[:, 2:].double().std(1, keepdim=True, correction=0)
torch.testing.assert_close(deviation, expected, rtol=1e-4, atol=1e-5)
torch.testing.assert_close(kernels.top_and_deviation(given)[1], expected, rtol=1e-4, atol=1e-5)

seeds = torch.randint(-2**31, 2**31, (rows, 1), generator=generator).to(torch.int32)
share = torch.linspace(0.1, 0.9, rows).unsqueeze(1)
limit, bias = (share * 2**32 - 2**31).to(torch.int32), share * 10
expected = kernels.add_where_hashed_(given.clone(), seeds, limit, bias)
assert torch.equal(fused.add_where_hashed_(given, seeds, limit, bias), expected)
"""

SPLIT = """
from lpkit.kernels import triton as fused

for rows in (1, 2, 7, 131, 132, 256, 1024):
    for vocab in (1, 5, 4096, 4097, 32000, 128256, 151936):
        parts, size = fused.split(rows, vocab)
        assert size % fused.BLOCK == 0 and 1 <= parts <= fused.MOST_PARTS
        assert (parts - 1) * size < vocab <= parts * size, (rows, vocab)
assert fused.split(1, 151936)[0] >= 32  # a single request is spread over the GPU
assert fused.split(1024, 151936)[0] == 1
"""


def interpret(code: str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["mask_below_", "mask_above_", "mask_far_below_top_"])
@pytest.mark.parametrize(("rows", "vocab", "extra"), [(1, 3, 0), (3, 300, 8), (5, 9000, 0), (2, 40_000, 64)])
def test_every_kept_bit_and_every_mask_is_that_of_the_torch_path(name: str, rows: int, vocab: int, extra: int) -> None:
    interpret(COMPARE, rows, vocab, extra, name)


@pytest.mark.parametrize(("rows", "vocab", "extra"), [(1, 5, 0), (3, 300, 8), (2, 9000, 0), (1, 40_000, 64)])
def test_what_is_computed_of_rows_is_what_the_torch_path_computes(rows: int, vocab: int, extra: int) -> None:
    interpret(STATISTICS, rows, vocab, extra)


def test_parts_cover_a_row_and_small_batches_have_many() -> None:
    interpret(SPLIT)
