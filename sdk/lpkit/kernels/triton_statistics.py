"""Statistics of whole rows as Triton kernels for CUDA: first of each part of a row, then of the row."""

from __future__ import annotations

import torch
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import BLOCK, SPAN, WARPS, Entries, _entry, _grid, _row, _tile, over_rows
from lpkit.kernels.triton_spans import keep_tops


@over_rows
def _exponentials(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    temperatures,
    highest,
    sums,
    tops,
    stride,
    own_step,
    temperatures_step,
    vocab,
    spans,
    parts,
    size,
    SPAN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Store for each part of each row its highest logit, and the sum of exp((logit - highest) / temperature); and the
    highest logit of each span."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = _entry(slots, own, own_step, row)
    scale = 1.0 / tl.load(temperatures + slot * temperatures_step)
    start, begin, end = _row(logits, row, stride, vocab)
    end = tl.where(edited, end, 0)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
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
    slots,
    own,
    found,
    tops,
    stride,
    own_step,
    vocab,
    spans,
    parts,
    size,
    SPAN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Store for each part of each row the highest logit; for its unmasked logits the number, mean, and squares around
    it; and the highest logit of each span.

    One pass, by the updates of Welford (1962) and Chan, Golub and LeVeque (1979).
    """
    row, part = tl.program_id(0), tl.program_id(1)
    start, begin, end = _row(logits, row, stride, vocab)
    _, edited = _entry(slots, own, own_step, row)
    end = tl.where(edited, end, 0)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
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


def exponentials(
    logits: torch.Tensor, temperature: torch.Tensor, entries: Entries, tops: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return highest logits and sums, ``[n, parts]`` each, for :func:`lpkit.kernels.triton_parts.of_sums`; store the
    highest logit of each span in ``tops``."""
    grid, (stride, vocab, parts, size) = _grid(logits)
    highest, sums = torch.empty(2, *grid, dtype=torch.float32, device=logits.device)
    given = (logits, entries.slots, entries.own, temperature, highest, sums, tops)
    sizes = (stride, entries.step, temperature.stride(0), vocab, tops.shape[1], parts, size)
    launch(_exponentials, grid, (*given, *sizes), SPAN=SPAN, BLOCK=BLOCK, num_warps=WARPS)
    return highest, sums


def moments(logits: torch.Tensor, entries: Entries, tops: torch.Tensor) -> torch.Tensor:
    """Return ``[n, parts, 4]`` for :func:`lpkit.kernels.triton_parts.of_moments`; store the highest logit of each span
    in ``tops``."""
    grid, (stride, vocab, parts, size) = _grid(logits)
    result = torch.empty(*grid, 4, dtype=torch.float32, device=logits.device)
    given = (logits, entries.slots, entries.own, result, tops, stride, entries.step, vocab, tops.shape[1], parts, size)
    # Half a tile: it keeps four numbers per logit.
    launch(_moments, grid, given, SPAN=SPAN, BLOCK=BLOCK // 2, num_warps=WARPS)
    return result
