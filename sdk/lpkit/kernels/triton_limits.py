"""Masks and temperatures that depend on a row's own numbers, as Triton kernels for CUDA, in two launches; see
:mod:`lpkit.kernels.triton_rows`.

Each function does what the function of its name in :mod:`lpkit.kernels` documents. ``entries``: the rows' slots, if the
per-row values are columns.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import (
    BLOCK,
    FAR,
    KEPT,
    MOST_PARTS,
    SPAN,
    WARPS,
    Entries,
    backwards,
    bounds,
    by_row,
    entry,
    grid_of,
    keep_tops,
    mask_spans,
    mask_tile,
    number,
    numbers_of,
    of_entropy,
    of_moments,
    over_rows,
    per_row,
    tile,
    write,
)

LEAST = tl.constexpr(1e-10)
LOWEST = tl.constexpr(-1e9)

COLUMNS = 4
"""Per-row values that a limit depends on."""

STATISTICS = {"far": "tops", "deviating": "moments", "unlikely": "shares"}
"""The numbers of a row that each rule's limit depends on."""

TILES = {"tops": BLOCK, "moments": BLOCK // 2, "shares": BLOCK // 2}
"""Half a tile for statistics that keep four numbers for each logit of one."""


@over_rows
def _statistics(
    logits, slots, own, temperatures, found,
    stride, own_step, step, vocab, spans, parts, size,
    KIND: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the highest logit of each span, and four numbers for each part of each row.

    ``KIND``: "tops", for the highest logit and the number of NaN; "moments" and "shares", for the input of
    :func:`lpkit.kernels.triton_rows.of_moments` and :func:`~lpkit.kernels.triton_rows.of_entropy`. Moments take one
    pass, by the updates of Welford (1962) and Chan, Golub and LeVeque (1979).
    """
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = entry(slots, own, own_step, row)
    if edited:
        start, begin, end = bounds(logits, row, stride, vocab)
        found, tops = numbers_of(found, row, parts, spans)
        scale = 1.0
        if KIND == "shares":
            scale /= tl.load(temperatures + slot * step)
        best = tl.full((BLOCK,), float("-inf"), tl.float32)
        count = tl.zeros((BLOCK,), tl.float32)
        first = tl.zeros((BLOCK,), tl.float32)
        second = tl.zeros((BLOCK,), tl.float32)
        for offset in range(part * size, min(part * size + size, end), BLOCK):
            values = tile(start, offset, begin, end, float("-inf"), BLOCK)
            keep_tops(values, tops, offset, spans, SPAN, BLOCK)
            higher = tl.maximum(best, values)
            if KIND == "tops":
                count += tl.where(values != values, 1.0, 0.0)
            elif KIND == "moments":
                there = values != float("-inf")  # NaN too, which makes the row's numbers NaN
                count += tl.where(there, 1.0, 0.0)
                away = tl.where(there, values - first, 0.0)
                first += away / tl.maximum(count, 1.0)
                second += tl.where(there, away * (values - first), 0.0)
            else:
                origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN
                moved = tl.maximum((best - origin) * scale, FAR)
                below = tl.maximum((values - origin) * scale, FAR, propagate_nan=tl.PropagateNan.ALL)
                share = tl.exp(below)
                second = (second + first * moved) * tl.exp(moved) + share * below
                first = first * tl.exp(moved) + share
                count += tl.where(values > float("-inf"), 1.0, 0.0)
            best = higher
        found += part * 4
        top = tl.max(best, 0)
        whole = tl.sum(count, 0)
        tl.store(found, top)
        if KIND == "tops":
            tl.store(found + 1, whole)
        elif KIND == "moments":
            middle = tl.sum(count * first, 0) / tl.maximum(whole, 1.0)
            tl.store(found + 1, whole)
            tl.store(found + 2, middle)
            tl.store(found + 3, tl.sum(second + count * (first - middle) * (first - middle), 0))
        else:
            moved = tl.maximum((best - tl.where(top == float("-inf"), 0.0, top)) * scale, FAR)
            tl.store(found + 1, tl.sum(first * tl.exp(moved), 0))
            tl.store(found + 2, tl.sum((second + first * moved) * tl.exp(moved), 0))
            tl.store(found + 3, whole)


@over_rows
def _mask_by_limit(
    logits, slots, own, found, first, second, third, fourth,
    own_step, first_step, second_step, third_step, fourth_step, stride, vocab, spans, parts, size,
    RULE: tl.constexpr, PARTS: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Mask logits below a limit that depends on the row's numbers.

    ``RULE``: "far", a distance, times a temperature, below the highest logit; "deviating", a number of standard
    deviations below it; "unlikely", see :func:`lpkit.kernels.mask_unlikely_`.
    """
    row, part = backwards()
    slot, edited = entry(slots, own, own_step, row)
    if edited:
        start, begin, end = bounds(logits, row, stride, vocab)
        found, tops = numbers_of(found, row, parts, spans)
        given = tl.load(first + slot * first_step)
        if RULE == "far":
            top = tl.max(number(found, 0, parts, float("-inf"), PARTS), 0)
            limit = top - given * tl.load(second + slot * second_step)
            broken = tl.sum(number(found, 1, parts, 0.0, PARTS), 0) > 0
            limit = tl.where(broken, float("nan"), limit)  # as torch's amax: NaN is the highest
        elif RULE == "deviating":
            top, deviation = of_moments(found, parts, PARTS)
            limit = top - (given * deviation).to(tl.float32)
        else:
            top, total, entropy, _ = of_entropy(found, parts, 1.0 / given, PARTS)
            least = tl.load(second + slot * second_step)
            least += tl.load(third + slot * third_step) * (top / given - total)
            other = tl.load(fourth + slot * fourth_step) - entropy
            limit = given * (total + tl.where(other < least, other, least))
            limit = tl.where(limit > top, top, limit)  # NaN, where there is a NaN in the row, stays
        mask_spans(start, begin, end, tops, part * size, limit, size, SPAN)


@triton.jit
def _last_before(flags, which, end):
    """Return the last flagged position before an end; -1 without a flag."""
    return tl.max(tl.where(flags & (which < end), which, -1), 0)


@over_rows
def _exclude(
    logits, slots, own, found, temperatures, thresholds, ids,
    own_step, temperature_step, threshold_step, ids_stride, k, stride, vocab, spans, parts,
    KEPT: tl.constexpr, PARTS: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Mask a row's tokens that are at least as likely as its threshold, except the least likely of them, unless this
    masks one of its ids. Few spans have such a token: one program reads them all."""
    row = tl.program_id(0)
    slot, edited = entry(slots, own, own_step, row)
    if edited:
        start, begin, end = bounds(logits, row, stride, vocab)
        found, tops = numbers_of(found, row, parts, spans)
        temperature = tl.load(temperatures + slot * temperature_step)
        _, total, _, _ = of_entropy(found, parts, 1.0 / temperature, PARTS)
        limit = temperature * (total + tl.load(thresholds + slot * threshold_step))
        which = tl.arange(0, KEPT)
        best = tl.full((SPAN,), float("inf"), tl.float32)
        if limit < float("inf"):  # not NaN
            for first in range(0, end, KEPT * SPAN):
                near = tl.load(tops + first // SPAN + which, mask=first + which * SPAN < end, other=float("nan"))
                span = _last_before(near >= limit, which, KEPT)
                while span >= 0:
                    values = tile(start, first + span * SPAN, begin, end, float("inf"), SPAN)
                    best = tl.minimum(best, tl.where(values < limit, float("inf"), values))
                    span = _last_before(near >= limit, which, span)
        least = tl.min(best, 0)
        kept = tl.zeros((KEPT,), tl.int32)
        for offset in range(0, k, KEPT):
            token = tl.load(ids + slot * ids_stride + offset + which, mask=offset + which < k, other=-1)
            value = tl.load(start + begin + token, mask=(token >= 0) & (token < vocab), other=float("-inf"))
            kept |= (value > least).to(tl.int32)
        if (least < float("inf")) & (tl.max(kept, 0) == 0):
            tl.debug_barrier()  # other threads read the ids' logits
            for first in range(0, end, KEPT * SPAN):
                near = tl.load(tops + first // SPAN + which, mask=first + which * SPAN < end, other=float("-inf"))
                span = _last_before(near > least, which, KEPT)
                while span >= 0:
                    offset = first + span * SPAN
                    values = tile(start, offset, begin, end, float("-inf"), SPAN)
                    mask_tile(start, offset, begin, end, values > least, values, SPAN)
                    span = _last_before(near > least, which, span)


@over_rows
def _retemper(
    logits, slots, own, found, temperatures, lows, highs, exponents, smoothings, curves,
    own_step, temperature_step, low_step, high_step, exponent_step, smoothing_step, curve_step, stride, vocab, spans,
    parts, size,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Divide by each row's temperature, and bend the logits."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = entry(slots, own, own_step, row)
    if edited:
        start, begin, end = bounds(logits, row, stride, vocab)
        found, _ = numbers_of(found, row, parts, spans)
        temperature = tl.load(temperatures + slot * temperature_step)
        low = tl.load(lows + slot * low_step)
        smoothing, curve = tl.load(smoothings + slot * smoothing_step), tl.load(curves + slot * curve_step)
        top, _, entropy, count = of_entropy(found, parts, 1.0 / temperature, PARTS)
        share = entropy / tl.maximum(tl.log(count), LEAST)  # one token: the entropy is 0
        share = tl.where(share > LEAST, tl.minimum(share, 1.0), LEAST)  # NaN too
        power = tl.exp2(tl.load(exponents + slot * exponent_step) * tl.log2(share))
        by = low + (tl.load(highs + slot * high_step) - low) * power
        top = tl.maximum(top, LOWEST)
        for offset in range(part * size, min(part * size + size, end), BLOCK):
            values = tile(start, offset, begin, end, float("-inf"), BLOCK)
            there = values > float("-inf")
            below = tl.maximum(values - top, LOWEST) / (temperature * by)
            bent = below * below * (below * (curve - 1) - (3 - curve)) * (smoothing / 2)
            below = tl.where(smoothing > 0, bent, below)
            result = tl.where(there, below * temperature, float("-inf"))
            write(start, offset, begin, end, result, there, BLOCK)


def statistics(kind: str, logits: torch.Tensor, temperature: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Return the numbers of each row, ``[n, 4 * parts + spans]``."""
    grid, (stride, vocab, spans, parts, size) = grid_of(logits)
    found = torch.empty(grid[0], parts * 4 + spans, dtype=torch.float32, device=logits.device)
    sizes = (stride, entries.step, temperature.stride(0), vocab, spans, parts, size)
    given = (logits, entries.slots, entries.own, temperature, found, *sizes)
    launch(_statistics, grid, given, KIND=kind, SPAN=SPAN, BLOCK=TILES[kind], num_warps=WARPS)
    return found


def _mask_by(
    rule: str,
    logits: torch.Tensor,
    values: tuple[torch.Tensor, ...],
    entries: Entries | None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    entries = entries or by_row(logits)
    grid, sizes = grid_of(logits)
    columns, steps = zip(*(per_row(item, entries, dtype) for item in values), strict=True)
    found = statistics(STATISTICS[rule], logits, columns[0], entries)
    others = COLUMNS - len(columns)  # not read
    given = (*columns, *columns[:1] * others, entries.step, *steps, *steps[:1] * others, *sizes)
    # Multiplying and subtracting in one instruction would round once where the operations of torch round twice.
    given = (logits, entries.slots, entries.own, found, *given)
    launch(_mask_by_limit, grid, given, RULE=rule, PARTS=MOST_PARTS, SPAN=SPAN, num_warps=WARPS, enable_fp_fusion=False)
    return logits


@cache
def _one(device: torch.device) -> torch.Tensor:
    return torch.ones(1, 1, device=device)


def mask_far_below_top_(
    logits: torch.Tensor,
    distance: torch.Tensor,
    temperature: torch.Tensor | None = None,
    entries: Entries | None = None,
) -> torch.Tensor:
    temperature = _one(logits.device) if temperature is None else temperature
    return _mask_by("far", logits, (distance, temperature), entries)


def mask_deviations_below_top_(
    logits: torch.Tensor, deviations: torch.Tensor, entries: Entries | None = None
) -> torch.Tensor:
    return _mask_by("deviating", logits, (deviations,), entries, torch.float64)


def mask_unlikely_(logits: torch.Tensor, *values: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    return _mask_by("unlikely", logits, values, entries)


def exclude_top_choices_(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    log_threshold: torch.Tensor,
    keep: torch.Tensor,
    where: torch.Tensor | None = None,
    entries: Entries | None = None,
) -> torch.Tensor:
    entries = entries or by_row(logits, where)
    (rows, _), (stride, vocab, spans, parts, _) = grid_of(logits)
    temperature, step = per_row(temperature, entries)
    threshold, threshold_step = per_row(log_threshold, entries)
    found = statistics("shares", logits, temperature, entries)
    keep = keep if keep.stride(1) == 1 else keep.contiguous()
    sizes = (entries.step, step, threshold_step, keep.stride(0), keep.shape[1], stride, vocab, spans, parts)
    given = (logits, entries.slots, entries.own, found, temperature, threshold, keep, *sizes)
    launch(_exclude, (rows,), given, KEPT=KEPT, PARTS=MOST_PARTS, SPAN=SPAN, num_warps=WARPS)
    return logits


def dynamic_temperature_(logits: torch.Tensor, *values: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    entries = entries or by_row(logits)
    grid, sizes = grid_of(logits)
    columns, steps = zip(*(per_row(item, entries) for item in values), strict=True)
    given = (logits, entries.slots, entries.own, statistics("shares", logits, columns[0], entries))
    given = (*given, *columns, entries.step, *steps, *sizes)
    launch(_retemper, grid, given, PARTS=MOST_PARTS, BLOCK=BLOCK, num_warps=WARPS)
    return logits
