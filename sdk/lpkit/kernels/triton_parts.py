"""Combination of the parts of a row, as Triton kernels for CUDA: one small launch with a program for each row.

The kernels for whole rows store a few numbers for each part of a row; see :mod:`lpkit.kernels.triton_rows`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch

MOST_PARTS = 64
"""Most parts of a row."""

FAR = tl.constexpr(-1e30)
"""Distance below the top, times a scale, without a share. Unlike -inf, it gives no NaN in a product."""


@triton.jit
def _from_top(best, scale):  # type: ignore[no-untyped-def]
    """Return (highest logit of a row, distance of each part's highest from it, times a scale)."""
    top = tl.max(best, 0)
    return top, tl.maximum((best - tl.where(top == float("-inf"), 0.0, top)) * scale, FAR)


@triton.jit  # type: ignore[untyped-decorator]
def of_entropy(found, parts, scale, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return (highest logit, logarithm of the sum of exponentials, entropy, unmasked tokens) of a row.

    Each part has its highest logit; the sum of shares, relative to that logit's; the sum of their products with their
    logarithms; and the number of unmasked tokens.
    """
    part = tl.arange(0, PARTS)
    mine = part < parts
    top, below = _from_top(tl.load(found + part * 4, mask=mine, other=float("-inf")), scale)
    total = tl.load(found + part * 4 + 1, mask=mine, other=0.0)
    weighed = tl.load(found + part * 4 + 2, mask=mine, other=0.0)
    weighed = tl.sum((weighed + total * below) * tl.exp(below), 0)
    total = tl.sum(total * tl.exp(below), 0)
    log_total = tl.where(total == 0, float("nan"), tl.log(total))  # NaN: all is masked
    count = tl.sum(tl.load(found + part * 4 + 3, mask=mine, other=0.0), 0)
    return top, top * scale + log_total, log_total - weighed / total, count


@triton.jit  # type: ignore[untyped-decorator]
def of_sums(highest, sums, parts, scale, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Compute the logarithm of a row's sum of exponentials. Each part has its highest logit, and the sum relative to
    it."""
    part = tl.arange(0, PARTS)
    mine = part < parts
    top, below = _from_top(tl.load(highest + part, mask=mine, other=float("-inf")), scale)
    total = tl.sum(tl.load(sums + part, mask=mine, other=0.0) * tl.exp(below), 0)
    return top * scale + tl.where(total == 0, float("nan"), tl.log(total))


@triton.jit  # type: ignore[untyped-decorator]
def of_moments(found, parts, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return (highest logit, standard deviation in float64) of a row.

    Each part has its highest logit, and for its unmasked logits the number, the mean, and the sum of squares around it.
    """
    part = tl.arange(0, PARTS)
    mine = part < parts
    top = tl.max(tl.load(found + part * 4, mask=mine, other=float("-inf")), 0)
    count = tl.load(found + part * 4 + 1, mask=mine, other=0.0).to(tl.float64)
    mean = tl.load(found + part * 4 + 2, mask=mine, other=0.0).to(tl.float64)
    squares = tl.load(found + part * 4 + 3, mask=mine, other=0.0).to(tl.float64)
    number = tl.sum(count, 0)
    away = mean - tl.sum(count * mean, 0) / number
    return top, tl.sqrt(tl.sum(squares + count * away * away, 0) / number)


@triton.jit(do_not_specialize=["found", "temperatures", "results", "temperature_step", "parts"])  # type: ignore[untyped-decorator]
def _entropy(found, temperatures, results, temperature_step, parts, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    scale = 1.0 / tl.load(temperatures + row * temperature_step)
    _, total, entropy, _ = of_entropy(found + row * parts * 4, parts, scale, PARTS)
    tl.store(results + row, total)
    tl.store(results + tl.num_programs(0) + row, entropy)


def entropy(found: torch.Tensor, temperature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (log of the sum of exponentials, entropy), ``[n, 1]`` each, from ``[n, parts, 4]``; see
    :func:`of_entropy`."""
    n, parts, _ = found.shape
    results = torch.empty(2, n, 1, dtype=torch.float32, device=found.device)
    launch(_entropy, (n,), (found, temperature, results, temperature.stride(0), parts), PARTS=MOST_PARTS, num_warps=1)
    total, of_rows = results.unbind()
    return total, of_rows
