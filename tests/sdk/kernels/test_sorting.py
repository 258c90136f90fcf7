"""Sorting by numpy says what torch's sorting says."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit.kernels import sort, sorted_values

ODD = torch.tensor([[3.0, -math.inf, math.nan, 0.0, -0.0, 2.0, -math.nan, math.inf, -2.0, 2.0, 1e-45, -1e-45]])
NEGATIVE_NAN = torch.tensor([-4194304], dtype=torch.int32).view(torch.float32)


def drawn(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    whole = torch.randint(-50, 50, (5, 301))  # many are equal
    return whole.to(dtype) if dtype != torch.int64 else whole << 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.float64, torch.bfloat16])
def test_rows_are_sorted_as_torch_does_and_equal_values_stay_in_order(dtype: torch.dtype) -> None:
    values = drawn(dtype)
    wanted = values.sort(stable=True, dim=-1)
    found, indices = sort(values)
    assert found.dtype == dtype
    assert torch.equal(found, wanted.values)
    assert torch.equal(indices, wanted.indices)
    assert torch.equal(sorted_values(values), wanted.values)


def test_zeros_of_both_signs_are_equal_and_nan_of_both_signs_is_last() -> None:
    values = torch.cat([NEGATIVE_NAN.view(1, 1), ODD], 1)
    wanted = values.sort(stable=True, dim=-1)
    found, indices = sort(values)
    assert torch.equal(indices[:, :-3], wanted.indices[:, :-3])
    assert torch.equal(found[:, :-3], wanted.values[:, :-3])
    assert found[:, -3:].isnan().all()
    assert sorted_values(values)[:, -3:].isnan().all()


@pytest.mark.parametrize("shape", [(0, 7), (3, 0), (2, 1), (7,), (2, 3, 4)])
def test_any_shape_is_sorted_along_its_last_axis(shape: tuple[int, ...]) -> None:
    for values in (torch.randn(shape), torch.randn(shape).mT if len(shape) > 1 else torch.randn(2, *shape)[:, ::2]):
        found, indices = sort(values)
        assert found.shape == indices.shape == values.shape
        assert torch.equal(found, values.sort(-1).values)
        assert torch.equal(sorted_values(values), values.sort(-1).values)


def test_what_is_sorted_stays_as_it_was() -> None:
    values = torch.randn(3, 9)
    before = values.clone()
    sort(values)
    sorted_values(values)
    assert torch.equal(values, before)


def test_autograd_goes_through() -> None:
    values = torch.randn(2, 5, requires_grad=True)
    found, indices = sort(values)
    (found * torch.arange(5)).sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad.gather(1, indices), torch.arange(5.0).expand(2, 5))
    assert sorted_values(values).requires_grad


def test_a_tensor_without_memory_is_sorted_by_torch() -> None:
    values = torch.empty(2, 5, device="meta")
    assert sort(values)[1].device.type == sorted_values(values).device.type == "meta"
