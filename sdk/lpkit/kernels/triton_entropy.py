"""Entropies of whole rows, and temperatures and masks that follow them, as Triton kernels for CUDA.

See :func:`lpkit.kernels.log_sum_exp_and_entropy`, :func:`lpkit.kernels.dynamic_temperature_` and
:func:`lpkit.kernels.mask_unlikely_`.
"""

from __future__ import annotations

import torch
import triton.language as tl

from lpkit.kernels import triton_parts
from lpkit.kernels.launching import launch
from lpkit.kernels.triton_parts import FAR, MOST_PARTS, of_entropy
from lpkit.kernels.triton_rows import (
    BLOCK,
    SPAN,
    WARPS,
    Entries,
    _entry,
    _grid,
    _per_row,
    _row,
    _tile,
    _write,
    by_row,
    over_rows,
)
from lpkit.kernels.triton_spans import backwards, keep_tops, mask_spans, room_for_tops

LEAST = tl.constexpr(1e-10)
LOWEST = tl.constexpr(-1e9)


@over_rows
def _shares(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    temperatures,
    found,
    tops,
    stride,
    own_step,
    temperature_step,
    vocab,
    spans,
    parts,
    size,
    TOPS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Store for each part of each row the input of :func:`lpkit.kernels.triton_parts.of_entropy`. ``TOPS``: store the
    highest logit of each span as well."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = _entry(slots, own, own_step, row)
    scale = 1.0 / tl.load(temperatures + slot * temperature_step)
    start, begin, end = _row(logits, row, stride, vocab)
    end = tl.where(edited, end, 0)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    weighed = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        if TOPS:
            keep_tops(values, tops + row.to(tl.int64) * spans, offset, spans, SPAN, BLOCK)
        higher = tl.maximum(best, values)
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN
        moved = tl.maximum((best - origin) * scale, FAR)
        below = tl.maximum((values - origin) * scale, FAR, propagate_nan=tl.PropagateNan.ALL)
        share = tl.exp(below)
        weighed = (weighed + total * moved) * tl.exp(moved) + share * below
        total = total * tl.exp(moved) + share
        count += tl.where(values > float("-inf"), 1.0, 0.0)
        best = higher
    top = tl.max(best, 0)
    moved = tl.maximum((best - tl.where(top == float("-inf"), 0.0, top)) * scale, FAR)
    result = found + (row * parts + part) * 4
    tl.store(result, top)
    tl.store(result + 1, tl.sum(total * tl.exp(moved), 0))
    tl.store(result + 2, tl.sum((weighed + total * moved) * tl.exp(moved), 0))
    tl.store(result + 3, tl.sum(count, 0))


@over_rows
def _retemper(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    found,
    temperatures,
    lows,
    highs,
    exponents,
    smoothings,
    curves,
    own_step,
    temperature_step,
    low_step,
    high_step,
    exponent_step,
    smoothing_step,
    curve_step,
    stride,
    vocab,
    parts,
    size,
    PARTS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Divide by each row's temperature, and bend the logits."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = _entry(slots, own, own_step, row)
    temperature = tl.load(temperatures + slot * temperature_step)
    low = tl.load(lows + slot * low_step)
    smoothing, curve = tl.load(smoothings + slot * smoothing_step), tl.load(curves + slot * curve_step)
    top, _, entropy, count = of_entropy(found + row * parts * 4, parts, 1.0 / temperature, PARTS)
    share = entropy / tl.maximum(tl.log(count), LEAST)  # one token: the entropy is 0
    share = tl.where(share > LEAST, tl.minimum(share, 1.0), LEAST)  # NaN too
    power = tl.exp2(tl.load(exponents + slot * exponent_step) * tl.log2(share))
    by = low + (tl.load(highs + slot * high_step) - low) * power
    top = tl.maximum(top, LOWEST)
    start, begin, end = _row(logits, row, stride, vocab)
    end = tl.where(edited, end, 0)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        there = values > float("-inf")
        below = tl.maximum(values - top, LOWEST) / (temperature * by)
        bent = below * below * (below * (curve - 1) - (3 - curve)) * (smoothing / 2)
        below = tl.where(smoothing > 0, bent, below)
        result = tl.where(there, below * temperature, float("-inf"))
        _write(start, offset, begin, end, result, there, BLOCK)


@over_rows
def _mask_unlikely(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    tops,
    found,
    temperatures,
    leasts,
    by_tops,
    by_entropies,
    own_step,
    temperature_step,
    least_step,
    by_top_step,
    by_entropy_step,
    stride,
    vocab,
    spans,
    parts,
    size,
    PARTS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
):
    """Mask tokens less likely than both limits of their row."""
    row, part = backwards()
    start, begin, end = _row(logits, row, stride, vocab)
    slot, edited = _entry(slots, own, own_step, row)
    temperature = tl.load(temperatures + slot * temperature_step)
    top, total, entropy, _ = of_entropy(found + row * parts * 4, parts, 1.0 / temperature, PARTS)
    least = tl.load(leasts + slot * least_step) + tl.load(by_tops + slot * by_top_step) * (top / temperature - total)
    other = tl.load(by_entropies + slot * by_entropy_step) - entropy
    limit = temperature * (total + tl.where(other < least, other, least))
    limit = tl.where(limit > top, top, limit)  # NaN, where there is a NaN in the row, stays
    limit = tl.where(edited, limit, float("nan"))
    mask_spans(start, begin, end, tops + row.to(tl.int64) * spans, part * size, limit, size, SPAN)


def log_sum_exp_and_entropy(logits: torch.Tensor, temperature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`lpkit.kernels.log_sum_exp_and_entropy`."""
    entries = by_row(logits)
    temperature, _ = _per_row(temperature, entries)
    return triton_parts.entropy(_parts(logits, temperature, entries), temperature)


def dynamic_temperature_(logits: torch.Tensor, *per_row: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    """See :func:`lpkit.kernels.dynamic_temperature_`."""
    entries = entries or by_row(logits)
    grid, sizes = _grid(logits)
    columns, steps = zip(*(_per_row(values, entries) for values in per_row), strict=True)
    given = (logits, entries.slots, entries.own, _parts(logits, columns[0], entries))
    args = (*given, *columns, entries.step, *steps, *sizes)
    launch(_retemper, grid, args, PARTS=MOST_PARTS, BLOCK=BLOCK, num_warps=WARPS)
    return logits


def mask_unlikely_(logits: torch.Tensor, *per_row: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_unlikely_`."""
    entries = entries or by_row(logits)
    grid, (stride, vocab, parts, size) = _grid(logits)
    columns, steps = zip(*(_per_row(values, entries) for values in per_row), strict=True)
    tops = room_for_tops(logits)
    given = (logits, entries.slots, entries.own, tops, _parts(logits, columns[0], entries, tops))
    sizes = (entries.step, *steps, stride, vocab, tops.shape[1], parts, size)
    launch(_mask_unlikely, grid, (*given, *columns, *sizes), PARTS=MOST_PARTS, SPAN=SPAN, num_warps=WARPS)
    return logits


def _parts(
    logits: torch.Tensor, temperature: torch.Tensor, entries: Entries, tops: torch.Tensor | None = None
) -> torch.Tensor:
    grid, (stride, vocab, parts, size) = _grid(logits)
    result = torch.empty(*grid, 4, dtype=torch.float32, device=logits.device)
    found, spans = (result, 0) if tops is None else (tops, tops.shape[1])
    given = (logits, entries.slots, entries.own, temperature, result, found)
    sizes = (stride, entries.step, temperature.stride(0), vocab, spans, parts, size)
    # Half a tile: it keeps four numbers for each logit of one.
    launch(_shares, grid, (*given, *sizes), TOPS=tops is not None, SPAN=SPAN, BLOCK=BLOCK // 2, num_warps=WARPS)
    return result
