"""The fused kernels of a GPU do to whole vocabularies what the CPU does."""

from __future__ import annotations

import math

import pytest
import torch
from device_under_test import DEVICE, HAVE_GPU, all_or, on_both, same_bits
from lpkit import kernels, rng

pytestmark = pytest.mark.gpu

SIZES = all_or([(7, 5021), (1, 151_936), (7, 151_936), (256, 151_936)], 1)


def logits_of(rows: int, vocab: int) -> torch.Tensor:
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(3)) * 3
    logits[:, :3] = torch.tensor([-math.inf, -0.0, 1e-45])
    return logits


@pytest.fixture(params=SIZES, ids=str)
def logits(request: pytest.FixtureRequest) -> torch.Tensor:
    assert not HAVE_GPU or kernels.prepare(DEVICE) is not None, "no Triton kernels on this GPU"
    return logits_of(*request.param)


def column(logits: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return torch.linspace(low, high, logits.shape[0]).unsqueeze(1)


def test_masks_keep_every_bit_of_what_they_keep(logits: torch.Tensor) -> None:
    limits = column(logits, 0.0, 3.0)
    found = kernels.mask_far_below_top_(logits.clone().to(DEVICE), limits.to(DEVICE)).cpu()
    expected = kernels.mask_far_below_top_(logits.clone(), limits)
    assert torch.equal(found.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("spread", [0.5, 3.0, 300.0], ids=["tokens in every span", "in some", "in one"])
def test_masks_from_the_top_are_the_same_whether_or_not_spans_are_read_again(
    spread: float, logits: torch.Tensor
) -> None:
    logits = logits * spread
    logits[0, : logits.shape[1] // 2] = -math.inf
    logits[-1, -1] = math.nan  # no highest logit to measure from
    packed = torch.rand(logits.shape[0], 3, generator=torch.Generator().manual_seed(5)) * 3
    for times in (None, slice(2, 3)):

        def compute(device: torch.device, times: slice | None = times) -> list[torch.Tensor]:
            columns = packed.to(device)
            temperature = None if times is None else columns[:, times]
            return [kernels.mask_far_below_top_(logits.clone().to(device), columns[:, 1:2], temperature)]

        assert same_bits(*on_both(compute))


@pytest.mark.filterwarnings("ignore:invalid value")  # numpy's, where kernels are interpreted: it is not selected
@pytest.mark.parametrize("name", ["mask_deviations_below_top_", "mask_unlikely_"])
def test_masks_by_a_rows_own_numbers_differ_by_a_token_next_to_the_limit_at_most(
    name: str, logits: torch.Tensor
) -> None:
    deviations = (column(logits, 0.5, 4.0).double(),)
    limits = column(logits, 0.5, 2.0), column(logits, -12.0, -2.0), column(logits, 0.0, 1.0), column(logits, -5.0, 0.0)

    def compute(device: torch.device) -> list[torch.Tensor]:
        given = deviations if name == "mask_deviations_below_top_" else limits
        return [getattr(kernels, name)(logits.clone().to(device), *(item.to(device) for item in given))]

    (found,), (expected,) = on_both(compute)
    assert torch.equal(found.masked_fill(found == -math.inf, 0.0), torch.where(found == -math.inf, 0.0, logits))
    kept, expected_kept = ((result > -math.inf).sum(1) for result in (found, expected))
    assert ((kept - expected_kept).abs() <= 1 + expected_kept // 10_000).all()
    lowest_kept = found.masked_fill(found == -math.inf, math.inf).amin(1)
    highest_masked = logits.masked_fill(found > -math.inf, -math.inf).amax(1)
    assert (lowest_kept >= highest_masked).all()
    assert (expected_kept < logits.shape[1]).any()


def test_the_same_top_choices_are_excluded(logits: torch.Tensor) -> None:
    rows = logits.shape[0]
    temperature, log_threshold = column(logits, 0.3, 0.6), column(logits, math.log(0.02), math.log(0.2))
    keep = torch.full((rows, 70), -1)
    keep[::3, 65] = logits.argmax(1)[::3]
    keep[1::3, 1] = 3
    where = torch.arange(rows).unsqueeze(1) % 5 != 3

    def compute(device: torch.device) -> list[torch.Tensor]:
        given = [item.to(device) for item in (temperature, log_threshold, keep)]
        every = kernels.exclude_top_choices_(logits.clone().to(device), *given)
        return [every, kernels.exclude_top_choices_(logits.clone().to(device), *given, where=where.to(device))]

    assert same_bits(*on_both(compute))


@pytest.mark.parametrize("k", [1, 100])
def test_tokens_are_kept_alone(k: int, logits: torch.Tensor) -> None:
    rows, vocab = logits.shape
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(3, vocab, (rows, k), generator=generator)
    ids[0, k // 2 + 1 :] = -1
    ids[rows // 2, 0] = -1  # no token: the row stays
    logits[-1].index_fill_(0, ids[-1].clamp(min=0), -math.inf)  # nothing would be left
    where = torch.arange(rows).unsqueeze(1) % 5 != 3

    def compute(device: torch.device) -> list[torch.Tensor]:
        some, lists = logits.clone().to(device), ids.to(device)
        every = kernels.keep_ids_(logits.clone().to(device), lists)
        return [every, kernels.keep_ids_(some, lists.t().contiguous().t(), where.to(device))]

    assert same_bits(*on_both(compute))


def test_a_hash_selects_the_same_tokens(logits: torch.Tensor) -> None:
    seeds = (torch.arange(logits.shape[0]) * 7919 - 99).to(torch.int32).unsqueeze(1)
    limit = (column(logits, 0.1, 0.9).double() * 2**32 - 2**31).to(torch.int32)
    arguments = (seeds, limit, column(logits, 0.5, 4.0))
    found = kernels.add_where_hashed_(logits.clone().to(DEVICE), *(item.to(DEVICE) for item in arguments)).cpu()
    assert torch.equal(found, kernels.add_where_hashed_(logits.clone(), *arguments))


def test_hashes_are_the_same() -> None:
    keys = torch.randint(-(2**63), 2**63 - 1, (7, 900), generator=torch.Generator().manual_seed(3))

    def compute(device: torch.device) -> list[torch.Tensor]:
        there = keys.to(device)
        lengths = torch.arange(7, device=device) * 5
        seeds = rng.context_seeds(there, lengths, lengths // 5 + 1, there[:, 0], 8)
        return [rng.mix(there, there[:, :1]), rng.uniform(there[:, 0], lengths), seeds]

    assert same_bits(*on_both(compute))


def test_tournaments_have_the_same_winners(logits: torch.Tensor) -> None:
    rows, vocab = logits.shape
    generator = torch.Generator().manual_seed(5)
    bits = torch.cat((torch.randint(0, 2, (100 + vocab,), generator=generator).float(), torch.zeros(vocab)))
    seeds, shifts = (torch.randint(0, 100, (rows, size), generator=generator) for size in (1, 6))
    shifts[0, 3:] = -1  # rounds that are not held
    arguments = (column(logits, 1.0, 2.0), bits, seeds, shifts)

    def compute(device: torch.device) -> list[torch.Tensor]:
        return [kernels.tournament_(logits.clone().to(device), *(item.to(device) for item in arguments))]

    (found,), (expected,) = on_both(compute)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_temperatures_follow_the_entropy_alike(logits: torch.Tensor) -> None:
    ends = ((0.5, 1.5), (0.3, 1.0), (1.0, 3.0), (0.5, 2.0), (0.0, 0.4), (1.0, 3.0))
    per_row = [column(logits, *each) for each in ends]

    def compute(device: torch.device) -> list[torch.Tensor]:
        given = logits.clone().to(device), *(item.to(device) for item in per_row)
        return [kernels.dynamic_temperature_(*given)]

    for found, expected in zip(*on_both(compute), strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
