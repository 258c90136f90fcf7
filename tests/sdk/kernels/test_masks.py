"""Masking kernels against what they say they do, computed one row at a time in float64 or by torch's masked_fill."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit import kernels

INF = math.inf
EXTREMES = [0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, INF, -INF, 1.0, -1.0]


@pytest.fixture(params=["one block", "blocks of two rows", "a block per row"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a test with blocks of several sizes; the vocabulary is 300."""
    if request.param != "one block":
        monkeypatch.setitem(kernels.WHOLE_BYTES, "cpu", 0)
        rows = 2 if "two" in request.param else 1
        monkeypatch.setitem(kernels.BLOCK_BYTES, "cpu", rows * 300 * 4)
    return 300


def logits_with_extremes(rows: int, vocab: int, seed: int = 0) -> torch.Tensor:
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3
    for row in range(rows):
        logits[row, row : row + len(EXTREMES)] = torch.tensor(EXTREMES)
    return logits


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.equal(found.contiguous().view(torch.int32), expected.contiguous().view(torch.int32))


LIMITS = torch.tensor([[0.5], [-INF], [INF], [-0.0], [3.4e38], [-3.4e38], [2.0]])


def test_mask_below_keeps_every_bit_of_what_it_keeps(size: int) -> None:
    logits = logits_with_extremes(7, size)
    expected = logits.masked_fill(logits < LIMITS, -INF)
    assert same_bits(kernels.mask_below_(logits, LIMITS), expected)


def test_mask_far_below_top_measures_from_each_rows_highest(size: int) -> None:
    logits = logits_with_extremes(5, size)
    logits[logits == INF] = 4.0
    logits[logits == 3.4e38] = 4.0
    logits[4] = -INF
    distance = torch.tensor([[0.0], [2.5], [1000.0], [INF], [1.0]])
    expected = logits.masked_fill(logits < logits.amax(1, keepdim=True) - distance, -INF)
    assert same_bits(kernels.mask_far_below_top_(logits, distance), expected)


def test_of_the_likely_tokens_the_least_likely_stays_and_what_ties_with_it(size: int) -> None:
    logits = torch.zeros(7, size)
    logits[:, :6] = torch.tensor([0.2, 0.3, 0.1, 0.15, 0.15, 0.08]).log() + 40.0
    logits[5] = -INF
    logits[6, 9] = math.nan
    thresholds = torch.tensor([[0.35], [0.25], [0.12], [0.12], [0.12], [0.12], [0.12]])
    keep = torch.full((7, 2), -1)
    keep[3, 1], keep[4, 0] = 0, 3  # would be masked; is one of the least likely
    temperature = torch.full((7, 1), 0.5)
    logits *= temperature
    expected = logits.clone()
    expected[2, :2] = expected[4, :2] = -INF
    exactly: Any = {"rtol": 0, "atol": 0, "equal_nan": True}
    result = kernels.exclude_top_choices_(logits.clone(), temperature, thresholds.log(), keep)
    torch.testing.assert_close(result, expected, **exactly)
    expected[4] = logits[4]
    some = torch.arange(7).unsqueeze(1) < 3
    result = kernels.exclude_top_choices_(logits, temperature, thresholds.log(), keep, some)
    assert result is logits
    torch.testing.assert_close(result, expected, **exactly)


def test_a_row_with_a_nan_has_no_highest_logit_to_measure_from(size: int) -> None:
    logits = torch.randn(2, size, generator=torch.Generator().manual_seed(1)) * 3
    logits[1, -1] = math.nan
    before = logits.clone()
    nothing, one = torch.zeros(2, 1), torch.ones(2, 1)
    for found in (
        kernels.mask_far_below_top_(logits.clone(), nothing),
        kernels.mask_deviations_below_top_(logits.clone(), nothing.double()),
        kernels.mask_unlikely_(logits.clone(), one, nothing, nothing, nothing),
    ):
        assert same_bits(found[1], before[1])
        assert not same_bits(found[0], before[0])


def test_strided_logits_are_edited_in_place(size: int) -> None:
    padded = torch.randn(7, size + 8)
    behind = padded[:, size:].clone()
    expected = padded[:, :size].masked_fill(padded[:, :size] < LIMITS, -INF)
    result = kernels.mask_below_(padded[:, :size], LIMITS)
    assert result.data_ptr() == padded.data_ptr()
    assert same_bits(padded[:, :size], expected) and torch.equal(padded[:, size:], behind)


def test_nan_is_not_below_a_limit(size: int) -> None:
    logits = torch.full((3, size), math.nan)
    assert kernels.mask_below_(logits.clone(), LIMITS[:3]).isnan().all()


def test_mask_ids_masks_what_is_named_and_leaves_a_row_alone_that_would_have_nothing_left() -> None:
    logits = logits_with_extremes(5, 64)
    logits[2] = -INF
    logits[2, [7, 9]] = 1.5
    logits[4] = -INF
    ids = torch.tensor([[3, 3, -1], [-1, -1, -1], [9, -1, 7], [-1, 0, 63], [5, -1, -1]])
    expected = logits.clone()
    expected[0, 3] = expected[3, 0] = expected[3, 63] = -INF
    result = kernels.mask_ids_(logits, ids)
    assert result is logits
    assert same_bits(result, expected)


def test_keep_ids_leaves_rows_alone_that_are_not_meant_or_whose_token_is_masked() -> None:
    logits = logits_with_extremes(4, 64)
    logits[2, 9] = -INF
    ids = torch.tensor([[9], [9], [9], [63]])
    where = torch.tensor([[True], [False], [True], [True]])
    before = logits.clone()
    kernels.keep_ids_(logits, ids, where)
    assert same_bits(logits[1:3], before[1:3])
    for row, token in ((0, 9), (3, 63)):
        assert logits[row].isfinite().nonzero().flatten().tolist() == [token]
        assert logits[row, token] == before[row, token]


def test_keep_ids_takes_lists_of_several_lengths() -> None:
    logits = logits_with_extremes(4, 64)
    logits[3, [5, 40]] = -INF
    ids = torch.tensor([[9, 30, 63], [40, -1, -1], [-1, -1, -1], [5, 40, -1]])
    before = logits.clone()
    kernels.keep_ids_(logits, ids)
    for row, kept in ((0, [9, 30, 63]), (1, [40])):
        assert (logits[row] > -INF).nonzero().flatten().tolist() == kept
        assert same_bits(logits[row, kept], before[row, kept])
    assert same_bits(logits[2:], before[2:])


def test_scratch_of_nested_loops_is_not_shared(size: int) -> None:
    logits = torch.randn(4, size)
    for block, scratch in kernels.blocks(logits, scratch=(torch.float32,)):
        scratch.fill_(7.0)
        kernels.mask_below_(block, torch.zeros(block.shape[0], 1))
        assert (scratch == 7.0).all()


def test_scratch_is_used_again_in_and_outside_of_inference_mode(size: int) -> None:
    seen = []
    for mode in (True, False, True):
        with torch.inference_mode(mode):
            for _, scratch in kernels.blocks(torch.zeros(2, size), scratch=(torch.float32,)):
                scratch.fill_(1.0)
                seen.append(scratch.data_ptr())
    assert len(set(seen)) == 1


def test_keep_members_leaves_rows_alone_that_would_have_nothing_left() -> None:
    logits = logits_with_extremes(4, 64)
    outside = torch.ones(4, 64)
    outside[:, 20:24] = 0.0
    logits[3, 20:24] = -INF
    expected = logits.masked_fill(outside > 0, -INF)
    expected[3] = logits[3]
    assert same_bits(kernels.keep_members_(logits, outside, torch.empty(4, 64)), expected)


def test_blocks_cover_every_row_once_and_share_their_scratch(size: int) -> None:
    logits, per_row = torch.zeros(5, size), torch.arange(5).unsqueeze(1)
    rows, memory = [], set()
    for block, some, scratch in kernels.blocks(logits, per_row, scratch=(torch.int32,)):
        block += 1
        rows += some.flatten().tolist()
        assert scratch.shape == block.shape and scratch.dtype == torch.int32
        memory.add(scratch.data_ptr())
    assert rows == list(range(5)) and len(memory) == 1
    assert torch.equal(logits, torch.ones(5, size))


def test_scratch_stays_small_however_large_the_batch() -> None:
    logits = torch.zeros(1, 1).expand(4096, 151_936)  # takes no memory
    _, scratch = next(iter(kernels.blocks(logits, scratch=(torch.float32,))))
    assert scratch.nbytes <= kernels.BLOCK_BYTES["cpu"]


def test_a_batch_without_rows_or_without_a_vocabulary_is_no_accident() -> None:
    for shape in ((0, 7), (3, 0)):
        logits = torch.zeros(shape)
        assert kernels.mask_below_(logits, torch.zeros(shape[0], 1)).shape == shape
    logits, per_row = torch.zeros(0, 7), torch.zeros(0, 1)
    for found in (
        kernels.mask_deviations_below_top_(logits, per_row.double()),
        kernels.mask_unlikely_(logits, per_row, per_row, per_row, per_row),
        kernels.exclude_top_choices_(logits, per_row, per_row, torch.zeros(0, 2, dtype=torch.int64)),
    ):
        assert found is logits
    assert [block.shape for (block,) in kernels.blocks(logits)] == [(0, 7)]


def test_a_masked_row_and_a_limit_of_nan_leave_rows_unchanged() -> None:
    masked, one = torch.full((1, 3), -math.inf), torch.ones(1, 1)
    for mask in (kernels.mask_below_, kernels.mask_far_below_top_):
        assert torch.equal(mask(torch.arange(3.0).view(1, 3), one * math.nan), torch.arange(3.0).view(1, 3))
    assert torch.equal(kernels.mask_deviations_below_top_(masked.clone(), one.double()), masked)
    assert torch.equal(kernels.mask_unlikely_(masked.clone(), one, one, one, one), masked)


def test_a_temperature_that_follows_the_entropy_leaves_a_masked_row_and_a_row_with_one_token() -> None:
    logits = torch.full((2, 3), -INF)
    logits[1, 2] = 4.0
    per_row = [torch.full((2, 1), value) for value in (0.8, 0.5, 2.0, 1.5, 0.3, 2.0)]
    assert kernels.dynamic_temperature_(logits.clone(), *per_row).tolist() == [[-INF] * 3, [-INF, -INF, 0.0]]


def test_without_cuda_there_are_no_fused_kernels() -> None:
    assert kernels.prepare(torch.device("cpu")) is None
    assert kernels.prepare(torch.device("meta")) is None


def test_the_entropy_has_a_gradient_that_masked_tokens_do_not_spoil() -> None:
    leaf = torch.tensor([[1.0, 2.0, -INF, 0.0]], requires_grad=True)
    total, entropy = kernels.log_sum_exp_and_entropy(leaf, torch.tensor([[0.5]]))
    with torch.no_grad():
        plain = kernels.log_sum_exp_and_entropy(leaf.detach(), torch.tensor([[0.5]]))
    assert torch.equal(total.detach(), plain[0]) and torch.equal(entropy.detach(), plain[1])
    entropy.sum().backward()
    other = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    torch.special.entr((other / 0.5).softmax(1)).sum().backward()
    torch.testing.assert_close(leaf.grad[0, [0, 1, 3]].double(), other.grad[0], rtol=1e-5, atol=1e-6)
    assert leaf.grad[0, 2] == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_than_float32_are_masked_alike(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)
    limit = torch.tensor([[2.0]])
    assert kernels.mask_below_(logits.clone(), limit).tolist() == [[-math.inf, 2.0, 3.0]]
    assert kernels.mask_far_below_top_(logits.clone(), torch.ones(1, 1)).tolist() == [[-math.inf, 2.0, 3.0]]
