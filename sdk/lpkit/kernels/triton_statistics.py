"""Statistics of whole rows as Triton kernels for CUDA: first of each part of a row, then of the row."""

from __future__ import annotations

import torch
import triton.language as tl

from lpkit.kernels import triton_parts
from lpkit.kernels.traffic import SPAN
from lpkit.kernels.triton_rows import BLOCK, WARPS, _grid, _per_row, _row, _tile, over_rows
from lpkit.kernels.triton_spans import keep_tops


@over_rows
def _least(logits, limits, least, stride, limits_step, vocab, parts, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Find the least logit in each part of each row that is not below the row's limit."""
    row, part = tl.program_id(0), tl.program_id(1)
    limit = tl.load(limits + row * limits_step)
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((BLOCK,), float("inf"), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("inf"), BLOCK)
        best = tl.minimum(best, tl.where(values < limit, float("inf"), values))
    tl.store(least + row * parts + part, tl.min(best, 0))


@over_rows
def _exponentials(  # type: ignore[no-untyped-def]
    logits,
    temperatures,
    highest,
    sums,
    tops,
    stride,
    temperatures_step,
    vocab,
    spans,
    parts,
    size,
    TOPS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Store for each part of each row its highest logit, and the sum of exp((logit - highest) / temperature). ``TOPS``:
    store the highest logit of each span as well."""
    row, part = tl.program_id(0), tl.program_id(1)
    scale = 1.0 / tl.load(temperatures + row * temperatures_step)
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        if TOPS:
            keep_tops(values, tops + row.to(tl.int64) * spans, offset, spans, SPAN, BLOCK)
        higher = tl.maximum(best, values)
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN
        total = total * tl.exp((best - origin) * scale) + tl.exp((values - origin) * scale)
        best = higher
    top = tl.max(best, 0)
    origin = tl.where(top == float("-inf"), 0.0, top)
    tl.store(highest + row * parts + part, top)
    tl.store(sums + row * parts + part, tl.sum(total * tl.exp((best - origin) * scale), 0))


@over_rows
def _moments(  # type: ignore[no-untyped-def]
    logits,
    found,
    tops,
    stride,
    vocab,
    spans,
    parts,
    size,
    TOPS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Store for each part of each row the highest logit; for its unmasked logits the number, mean, and squares around
    it. ``TOPS``: store the highest logit of each span as well.

    One pass, by the updates of Welford (1962) and Chan, Golub and LeVeque (1979).
    """
    row, part = tl.program_id(0), tl.program_id(1)
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        if TOPS:
            keep_tops(values, tops + row.to(tl.int64) * spans, offset, spans, SPAN, BLOCK)
        best = tl.maximum(best, values)
        there = values != float("-inf")  # NaN too, which makes the row's numbers NaN
        count += tl.where(there, 1.0, 0.0)
        away = tl.where(there, values - mean, 0.0)
        mean += away / tl.maximum(count, 1.0)
        squares += tl.where(there, away * (values - mean), 0.0)
    number = tl.sum(count, 0)
    middle = tl.sum(count * mean, 0) / tl.maximum(number, 1.0)
    result = found + (row * parts + part) * 4
    tl.store(result, tl.max(best, 0))
    tl.store(result + 1, number)
    tl.store(result + 2, middle)
    tl.store(result + 3, tl.sum(squares + count * (mean - middle) * (mean - middle), 0))


def least_from(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.least_from`."""
    grid, (stride, *sizes) = _grid(logits)
    least = torch.empty(grid, dtype=torch.float32, device=logits.device)
    limits, step = _per_row(lowest, logits)
    _least[grid](logits, limits, least, stride, step, *sizes, BLOCK=BLOCK, num_warps=WARPS)
    return least.amin(dim=1, keepdim=True)


def log_sum_exp(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.log_sum_exp`."""
    temperature, _ = _per_row(temperature, logits)
    return triton_parts.log_sum(*exponentials(logits, temperature), temperature)


def top_and_deviation(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`lpkit.kernels.top_and_deviation`."""
    return triton_parts.deviation(moments(logits))


def exponentials(
    logits: torch.Tensor, temperature: torch.Tensor, tops: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return highest logits and sums, ``[n, parts]`` each, for :func:`lpkit.kernels.triton_parts.of_sums`; with
    ``tops`` it stores the highest logit of each span there."""
    grid, (stride, vocab, parts, size) = _grid(logits)
    highest, sums = torch.empty(2, *grid, dtype=torch.float32, device=logits.device)
    found, spans = (sums, 0) if tops is None else (tops, tops.shape[1])
    given = (logits, temperature, highest, sums, found, stride, temperature.stride(0), vocab, spans, parts, size)
    _exponentials[grid](*given, TOPS=tops is not None, SPAN=SPAN, BLOCK=BLOCK, num_warps=WARPS)
    return highest, sums


def moments(logits: torch.Tensor, tops: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``[n, parts, 4]`` for :func:`lpkit.kernels.triton_parts.of_moments`; with ``tops`` it stores the highest
    logit of each span there."""
    grid, (stride, vocab, parts, size) = _grid(logits)
    result = torch.empty(*grid, 4, dtype=torch.float32, device=logits.device)
    found, spans = (result, 0) if tops is None else (tops, tops.shape[1])
    given = (logits, result, found, stride, vocab, spans, parts, size)
    # Half a tile: it keeps four numbers per logit.
    _moments[grid](*given, TOPS=tops is not None, SPAN=SPAN, BLOCK=BLOCK // 2, num_warps=WARPS)
    return result
