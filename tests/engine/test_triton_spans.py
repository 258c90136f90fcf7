"""Masks that look at spans a second time only where they must are those of the torch path; here under Triton's
interpreter, so no GPU is needed."""

from __future__ import annotations

from interpreted import interpret

# Rows of which most spans are masked without being read, some are masked already, and one is not aligned.
FAR_BELOW_TOP = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import triton_limits as fused

rows, vocab, extra = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
wide = torch.randn(rows, vocab + extra, generator=generator) * 3
wide[:, vocab // 3] += 30.0
wide[0, : vocab // 2] = -math.inf
wide[1] = -math.inf
wide[2, vocab - 1] = math.inf
wide[3, vocab // 2] = math.nan
given = wide[:, :vocab]
packed = torch.rand(rows, 3, generator=generator) * 20 + 0.01
packed[4, 0] = math.inf  # masks nothing
for distance in (packed[:, :1], packed[:, :1].contiguous(), packed[:1, :1], packed[:, :1].double()):
    for temperature in (None, packed[:, 1:2] / 7, packed[1:2, 1:2] / 7):
        expected = kernels.mask_far_below_top_(given.clone(), distance, temperature)
        logits = wide.clone()
        found = logits[:, :vocab]
        assert fused.mask_far_below_top_(found, distance, temperature) is found
        assert torch.equal(found.contiguous().view(torch.int32), expected.contiguous().view(torch.int32))
        assert torch.equal(logits[:, vocab:], wide[:, vocab:])
"""

# The limit of a row comes from its numbers: whole rows are compared, of which no logit lies as near to the limit as
# sums in another order differ.
LIMITS = """
import math, sys
import torch
import triton.language as tl
from lpkit import kernels
from lpkit.kernels import triton_limits
from lpkit.kernels.fused import WHOLE_ROWS, together

triton_limits.KEPT = tl.constexpr(4)  # so that a part of a row has more spans than are looked at at a time
fused = together(WHOLE_ROWS)
rows, vocab, extra = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
wide = torch.randn(rows, vocab + extra, generator=generator) * 3
few = torch.randperm(vocab, generator=generator)[:6]
wide[:, few] = torch.tensor([14.0, 14.5, 15.0, 15.0, 13.5, 13.0])
wide[0, : vocab // 2] = -math.inf
wide[1] = -math.inf
wide[2, :vocab] = -math.inf
wide[2, vocab - 1] = 1.5  # one token is left
wide[3, vocab // 2] = math.nan
packed = torch.rand(rows, 7, generator=generator)

def same(name, *given):
    expected = getattr(kernels, name)(wide.clone()[:, :vocab], *given)
    logits = wide.clone()
    found = logits[:, :vocab]
    assert getattr(fused, name)(found, *given) is found
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(logits[:, vocab:], wide[:, vocab:])
    return ((found == -math.inf) & (wide[:, :vocab] > -math.inf)).sum(1).tolist()

temperature = packed[:, 1:2] + 0.5
deviations = (packed[:, 2:3] * 3).double()
deviations[4] = math.inf
changed = same("mask_deviations_below_top_", deviations)
assert changed[5] and not any(changed[1:5])

by_entropy = packed[:, 3:4].log() / 2
by_entropy[4:6] = math.inf  # a limit by the likeliest token alone, and none at all
log_least, by_top = packed[:, 4:5].log() * 2 - 2, packed[:, 5:6] * 2
log_least[5] = -math.inf
changed = same("mask_unlikely_", temperature, log_least, by_top, by_entropy)
assert changed[0] and changed[4] and not any(changed[1:4] + changed[5:])
same("mask_unlikely_", temperature, log_least * 0 + 1, by_top, by_entropy)  # the likeliest token stays

keep = torch.full((rows, 3), -1)
keep[4, 2] = few[2]  # would be masked
keep[5, 1] = few[5]  # the least likely of all that are
ones = temperature * 0 + 1
for threshold in (0.3, 0.15, 0.02):
    log_threshold = ones * math.log(threshold)
    for ids in (keep, keep.t().contiguous().t()):
        changed = same("exclude_top_choices_", ones, log_threshold, ids)
        assert changed[1:5] == [0] * 4 and changed[5] == {0.3: 0, 0.15: 2, 0.02: 5}[threshold], changed
    same("exclude_top_choices_", temperature, log_threshold, keep[:, :0])
    where = packed[:, 6:7] > 0.5
    assert not any(torch.tensor(same("exclude_top_choices_", ones, log_threshold, keep, where))[~where[:, 0]])
"""


SIZES = [(6, 9, 0), (6, 300, 7), (6, 9001, 2)]
LONG = (6, 40_000, 64)


def test_spans_below_the_limit_are_masked_as_by_the_torch_path() -> None:
    interpret(FAR_BELOW_TOP, *SIZES, LONG)


def test_limits_that_a_row_sets_mask_what_they_mask_by_the_torch_path() -> None:
    interpret(LIMITS, *SIZES)
