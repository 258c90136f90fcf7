"""The kernels take the time that the model of their memory traffic says, at the speed of the floors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_under_test import DEVICE, HAVE_GPU
from lpkit import kernels
from lpkit.kernels.traffic import FUNCTIONS, LOGIT, PASSES, SPAN, traffic
from lpkit_conformance.bench.clock import Clock

pytestmark = pytest.mark.gpu

ROWS, VOCAB = (256, 151_936) if HAVE_GPU else (3, 5_000)
LIMIT, DISTANCE = 6.0, 2.3
"""Two deviations above the mean: tiles change. A tenth of the likeliest token's probability: few tokens stay."""

TIMES = 1.5
"""So much longer may a kernel take than by the traffic alone."""

LAUNCHES = 40e-6
"""Seconds that launching a function's kernels takes at most, combining what they found included."""

ROUNDS = 15


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    return (torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(3)) * 3).to(DEVICE)


def calls(work: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Each function of the model, as a rule calls it."""

    def column(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((ROWS, 1), value, dtype=dtype, device=DEVICE)

    limit, distance, ones = column(LIMIT), column(DISTANCE), column(1)
    seeds, share = column(7, torch.int32), column(0, torch.int32)
    ids = torch.arange(3, device=DEVICE).expand(ROWS, 3).contiguous()
    return {
        "mask_below_": lambda: kernels.mask_below_(work, limit),
        "mask_above_": lambda: kernels.mask_above_(work, limit),
        "mask_far_below_top_": lambda: kernels.mask_far_below_top_(work, distance, ones),
        "least_from": lambda: kernels.least_from(work, limit),
        "log_sum_exp": lambda: kernels.log_sum_exp(work, ones),
        "log_sum_exp_and_entropy": lambda: kernels.log_sum_exp_and_entropy(work, ones),
        "top_and_deviation": lambda: kernels.top_and_deviation(work),
        "mask_deviations_below_top_": lambda: kernels.mask_deviations_below_top_(work, limit.double()),
        "mask_unlikely_": lambda: kernels.mask_unlikely_(work, ones, -distance, ones, ones),
        "exclude_top_choices_": lambda: kernels.exclude_top_choices_(work, ones, -distance, ids),
        "dynamic_temperature_": lambda: kernels.dynamic_temperature_(work, *(ones,) * 6),
        "add_where_hashed_": lambda: kernels.add_where_hashed_(work, seeds, share, ones),
        "keep_ids_": lambda: kernels.keep_ids_(work, ids),
    }


def seconds(call: Callable[[], Any], logits: torch.Tensor, work: torch.Tensor) -> float:
    """Of one call on a copy of the logits, which leaves as little in the cache as what an engine does before."""
    clock, found = Clock(DEVICE), []
    for _ in range(ROUNDS):
        work.copy_(logits)
        found.append(clock.time(call)[0])
    return statistics.median(found)


def share_near_the_top(logits: torch.Tensor) -> float:
    """Of the spans: those that hold a logit that stays."""
    spans = torch.nn.functional.pad(logits, (0, -VOCAB % SPAN), value=-math.inf).view(ROWS, -1, SPAN).amax(2)
    return (spans >= logits.amax(1, keepdim=True) - DISTANCE).double().mean().item()


def test_every_function_of_the_model_is_measured(logits: torch.Tensor) -> None:
    assert calls(logits).keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_its_traffic_takes(name: str, logits: torch.Tensor) -> None:
    work = torch.empty_like(logits)
    read, both = seconds(lambda: work.amax(-1), logits, work), seconds(lambda: work.mul_(1.0), logits, work)
    cache = torch.cuda.get_device_properties(DEVICE).L2_cache_size if HAVE_GPU else 2**20
    passes = [PASSES[kernel] for kernel in FUNCTIONS[name]]
    moved = traffic(passes, ROWS, VOCAB, cache, share_near_the_top(logits))
    size = ROWS * VOCAB * LOGIT
    expected = moved.seconds(read / size, max(both - read, 0.0) / size)
    took = seconds(calls(work)[name], logits, work)
    print(f"{name}: {took * 1e6:.0f} us, {expected * 1e6:.0f} us by its traffic")
    if HAVE_GPU:
        assert took < TIMES * expected + LAUNCHES
