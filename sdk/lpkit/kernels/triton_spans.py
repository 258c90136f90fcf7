"""Masks that read a row twice, as Triton kernels for CUDA: the second time only spans that need it.

The first pass stores the highest logit of each span of :data:`lpkit.kernels.triton_rows.SPAN` logits. A span below the
limit is masked without being read, or skipped in a search. So a row is read once and written once, in two passes. No
program has to wait for others of its row, as it would to find the row in the L2 cache. The second pass begins with the
logits that the first pass read last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import (
    BLOCK,
    KEPT,
    SPAN,
    WARPS,
    WORD,
    Entries,
    _any,
    _entry,
    _grid,
    _per_row,
    _ratio_up,
    _row,
    _tile,
    _write,
    by_row,
    over_rows,
)


@triton.jit  # type: ignore[untyped-decorator]
def keep_tops(values, tops, offset, spans, SPAN: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Store the highest logit of each span of a tile."""
    place = offset // SPAN + tl.arange(0, BLOCK // SPAN)
    tl.store(tops + place, tl.max(tl.reshape(values, (BLOCK // SPAN, SPAN)), 1), mask=place < spans)


@triton.jit  # type: ignore[untyped-decorator]
def mask_spans(start, begin, end, tops, first, limit, size, SPAN: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Mask logits below a limit in a part of a row, usually nearly all; a NaN limit masks nothing."""
    if limit > float("-inf"):
        for offset in range(first, min(first + size, end), SPAN):
            top = tl.load(tops + offset // SPAN)
            if top >= limit:
                values = _tile(start, offset, begin, end, 0.0, SPAN)
                beyond = values < limit
                if _any(beyond):
                    _write(start, offset, begin, end, tl.where(beyond, float("-inf"), values), beyond, SPAN)
            elif top > float("-inf"):  # else it is masked already
                masked = tl.full((SPAN,), float("-inf"), tl.float32)
                _write(start, offset, begin, end, masked, masked < 0.0, SPAN)


@triton.jit
def backwards():  # type: ignore[no-untyped-def]
    """Return (row, part) of a program, in reverse order."""
    return tl.num_programs(0) - 1 - tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)


@over_rows
def _tops(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    tops,
    stride,
    own_step,
    vocab,
    spans,
    size,
    SPAN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Store the highest logit of each span of each row; a part with a NaN has a NaN among its own."""
    row, part = tl.program_id(0), tl.program_id(1)
    _, edited = _entry(slots, own, own_step, row)
    if edited:
        start, begin, end = _row(logits, row, stride, vocab)
        found = tops + row.to(tl.int64) * spans
        broken = tl.zeros((BLOCK,), tl.int32)
        for offset in range(part * size, min(part * size + size, end), BLOCK):
            values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
            broken |= (values != values).to(tl.int32)
            keep_tops(values, found, offset, spans, SPAN, BLOCK)
        if _any(broken):
            tl.debug_barrier()  # other threads write the values that this replaces
            tl.store(found + part * size // SPAN, float("nan"))


@over_rows
def _mask_below_top(  # type: ignore[no-untyped-def]
    logits,
    slots,
    own,
    tops,
    distances,
    temperatures,
    stride,
    own_step,
    distances_step,
    temperatures_step,
    vocab,
    spans,
    size,
    SCALED: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
    KEPT: tl.constexpr,  # noqa: N803
):
    """Mask logits more than a distance below their row's highest."""
    row, part = backwards()
    slot, edited = _entry(slots, own, own_step, row)
    if edited:
        found = tops + row.to(tl.int64) * spans
        start, begin, end = _row(logits, row, stride, vocab)
        best = tl.full((KEPT,), float("-inf"), tl.float32)
        broken = tl.zeros((KEPT,), tl.int32)
        for first in range(0, tl.cdiv(end, SPAN), KEPT):
            place = first + tl.arange(0, KEPT)
            some = tl.load(found + place, mask=place * SPAN < end, other=float("-inf"))
            best = tl.maximum(best, some)
            broken |= (some != some).to(tl.int32)
        distance = tl.load(distances + slot * distances_step)
        if SCALED:
            distance *= tl.load(temperatures + slot * temperatures_step)
        limit = tl.where(_any(broken), float("nan"), tl.max(best, 0) - distance)  # as torch's amax: NaN is the highest
        mask_spans(start, begin, end, found, part * size, limit, size, SPAN)


def mask_far_below_top_(
    logits: torch.Tensor,
    distance: torch.Tensor,
    temperature: torch.Tensor | None = None,
    entries: Entries | None = None,
) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_far_below_top_`."""
    entries = entries or by_row(logits)
    slots, own, own_step, _ = entries
    grid, (stride, vocab, _, size) = _grid(logits)
    tops = room_for_tops(logits)
    spans = tops.shape[1]
    distance, far = _per_row(distance, entries)
    factor, step = (distance, 0) if temperature is None else _per_row(temperature, entries)
    sizes = (stride, own_step, vocab, spans, size)
    launch(_tops, grid, (logits, slots, own, tops, *sizes), SPAN=SPAN, BLOCK=BLOCK, num_warps=WARPS)
    # Multiplying and subtracting in one instruction would round once where the operations of torch round twice.
    args = (logits, slots, own, tops, distance, factor, stride, own_step, far, step, vocab, spans, size)
    options = {"SCALED": temperature is not None, "SPAN": SPAN, "KEPT": KEPT}
    launch(_mask_below_top, grid, args, **options, num_warps=WARPS, enable_fp_fusion=False)
    return logits


def room_for_tops(logits: torch.Tensor) -> torch.Tensor:
    """Allocate memory for the highest logit of each span: float32 ``[n, spans]``."""
    spans = _ratio_up(logits.shape[1] + WORD.value - 1, SPAN)  # a row may begin within a word
    return torch.empty(logits.shape[0], spans, dtype=torch.float32, device=logits.device)
