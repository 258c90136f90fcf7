"""Masks by a limit that depends on the row's numbers, as Triton kernels for CUDA: some spans are read twice.

See :mod:`lpkit.kernels.triton_spans`. Each program of a row combines the results of the row's parts, which saves a
launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_parts import MOST_PARTS, of_moments, of_sums
from lpkit.kernels.triton_rows import (
    KEPT,
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
from lpkit.kernels.triton_spans import backwards, mask_spans, room_for_tops
from lpkit.kernels.triton_statistics import exponentials, moments


@triton.jit
def _last_before(flags, number, end):  # type: ignore[no-untyped-def]
    """Return the last flagged position before an end; -1 without a flag."""
    return tl.max(tl.where(flags & (number < end), number, -1), 0)


@over_rows
def _mask_deviating(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    tops,
    found,
    deviations,
    stride,
    own_step,
    deviations_step,
    vocab,
    spans,
    parts,
    size,
    PARTS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
):
    """Mask logits more than some standard deviations below their row's highest."""
    row, part = backwards()
    start, begin, end = _row(logits, row, stride, vocab)
    slot, edited = _entry(slots, own, own_step, row)
    top, deviation = of_moments(found + row * parts * 4, parts, PARTS)
    limit = top - (tl.load(deviations + slot * deviations_step) * deviation).to(tl.float32)
    limit = tl.where(edited, limit, float("nan"))
    mask_spans(start, begin, end, tops + row.to(tl.int64) * spans, part * size, limit, size, SPAN)


@over_rows
def _least_likely(  # type: ignore[no-untyped-def]
    logits,
    tops,
    highest,
    sums,
    temperatures,
    thresholds,
    own,
    least,
    stride,
    temperatures_step,
    thresholds_step,
    own_step,
    vocab,
    spans,
    parts,
    size,
    KEPT: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
):
    """Find the least logit in each part of each row whose token is at least as likely as the row's threshold."""
    row, part = backwards()
    start, begin, end = _row(logits, row, stride, vocab)
    temperature = tl.load(temperatures + row * temperatures_step)
    total = of_sums(highest + row * parts, sums + row * parts, parts, 1.0 / temperature, PARTS)
    limit = temperature * (total + tl.load(thresholds + row * thresholds_step))
    best = tl.full((SPAN,), float("inf"), tl.float32)
    if (limit < float("inf")) & (tl.load(own + row * own_step) != 0):  # not NaN
        last = min(part * size + size, end)
        number = tl.arange(0, KEPT)
        for first in range(part * size, last, KEPT * SPAN):
            place = row.to(tl.int64) * spans + first // SPAN + number
            near = tl.load(tops + place, mask=first + number * SPAN < last, other=float("nan")) >= limit
            span = _last_before(near, number, KEPT)
            while span >= 0:
                values = _tile(start, first + span * SPAN, begin, end, float("inf"), SPAN)
                best = tl.minimum(best, tl.where(values < limit, float("inf"), values))
                span = _last_before(near, number, span)
    tl.store(least + row * parts + part, tl.min(best, 0))


@over_rows
def _drop(  # type: ignore[no-untyped-def]
    logits,
    tops,
    least,
    ids,
    stride,
    ids_stride,
    vocab,
    spans,
    k,
    parts,
    size,
    KEPT: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
):
    """Mask logits above the least of a row's parts, unless the mask would hit one of the row's ids.

    Programs do not wait for each other. Each reads the ids: an id above the limit keeps all programs from writing, and
    other ids are not written.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    number = tl.arange(0, PARTS)
    limit = tl.min(tl.load(least + row * parts + number, mask=number < parts, other=float("inf")), 0)
    if limit < float("inf"):
        start, begin, end = _row(logits, row, stride, vocab)
        kept = tl.zeros((KEPT,), tl.int32)
        for offset in range(0, k, KEPT):
            item = offset + tl.arange(0, KEPT)
            token = tl.load(ids + row.to(tl.int64) * ids_stride + item, mask=item < k, other=-1)
            value = tl.load(start + begin + token, mask=(token >= 0) & (token < vocab), other=float("-inf"))
            kept |= (value > limit).to(tl.int32)
        if tl.max(kept, 0) == 0:
            last = min(part * size + size, end)
            which = tl.arange(0, KEPT)
            for first in range(part * size, last, KEPT * SPAN):
                place = row.to(tl.int64) * spans + first // SPAN + which
                above = tl.load(tops + place, mask=first + which * SPAN < last, other=float("-inf")) > limit
                span = _last_before(above, which, KEPT)
                while span >= 0:
                    offset = first + span * SPAN
                    values = _tile(start, offset, begin, end, float("-inf"), SPAN)
                    beyond = values > limit
                    _write(start, offset, begin, end, tl.where(beyond, float("-inf"), values), beyond, SPAN)
                    span = _last_before(above, which, span)


def mask_deviations_below_top_(
    logits: torch.Tensor, deviations: torch.Tensor, entries: Entries | None = None
) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_deviations_below_top_`."""
    entries = entries or by_row(logits)
    grid, (stride, vocab, parts, size) = _grid(logits)
    tops = room_for_tops(logits)
    found = moments(logits, entries, tops)
    deviations, step = _per_row(deviations, entries, torch.float64)
    given = (logits, entries.slots, entries.own, tops, found, deviations)
    sizes = (stride, entries.step, step, vocab, tops.shape[1], parts, size)
    launch(_mask_deviating, grid, (*given, *sizes), PARTS=MOST_PARTS, SPAN=SPAN, num_warps=WARPS)
    return logits


def exclude_top_choices_(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    log_threshold: torch.Tensor,
    keep: torch.Tensor,
    where: torch.Tensor | None = None,
) -> torch.Tensor:
    """See :func:`lpkit.kernels.exclude_top_choices_`."""
    grid, (stride, vocab, parts, size) = _grid(logits)
    tops = room_for_tops(logits)
    entries = by_row(logits, where)
    temperature, step = _per_row(temperature, entries)
    threshold, threshold_step = _per_row(log_threshold, entries)
    least = torch.empty(grid, dtype=torch.float32, device=logits.device)
    sums = exponentials(logits, temperature, entries, tops)
    given = (logits, tops, *sums, temperature, threshold, entries.own, least)
    steps = (stride, step, threshold_step, entries.step, vocab, tops.shape[1], parts, size)
    launch(_least_likely, grid, (*given, *steps), KEPT=KEPT, PARTS=MOST_PARTS, SPAN=SPAN, num_warps=WARPS)
    keep = keep if keep.stride(1) == 1 else keep.contiguous()
    sizes = (stride, keep.stride(0), vocab, tops.shape[1], keep.shape[1], parts, size)
    launch(_drop, grid, (logits, tops, least, keep, *sizes), KEPT=KEPT, PARTS=MOST_PARTS, SPAN=SPAN, num_warps=WARPS)
    return logits
