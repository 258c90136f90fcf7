"""The kernels take the time that the model of their memory traffic says, at the speed of the floors."""

from __future__ import annotations

import pytest
import torch
from device_under_test import DEVICE, HAVE_GPU
from kernels_on_gpu import calls, expected, make, seconds
from lpkit.kernels.traffic import FUNCTIONS

pytestmark = pytest.mark.gpu

ROWS, VOCAB = (256, 151_936) if HAVE_GPU else (3, 5_000)
TIMES = 1.5
"""So much longer may a kernel take than by the traffic alone."""

BETWEEN = 10e-6
"""Seconds between a function's kernels at most, combining what they found included."""


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    return make(ROWS, VOCAB, DEVICE)


@pytest.fixture(scope="module")
def by_traffic(logits: torch.Tensor) -> dict[str, float]:
    cache = torch.cuda.get_device_properties(DEVICE).L2_cache_size if HAVE_GPU else 2**20
    return expected(logits, torch.empty_like(logits), cache)


def test_every_function_of_the_model_is_measured(logits: torch.Tensor) -> None:
    assert calls(logits).keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_its_traffic_takes(name: str, logits: torch.Tensor, by_traffic: dict[str, float]) -> None:
    work = torch.empty_like(logits)
    took = seconds(calls(work)[name], logits, work)
    print(f"{name}: {took * 1e6:.0f} us, {by_traffic[name] * 1e6:.0f} us by its traffic")
    if HAVE_GPU:
        assert took < TIMES * by_traffic[name] + BETWEEN
