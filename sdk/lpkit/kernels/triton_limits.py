"""Masks, biases and temperatures of whole rows, as Triton kernels for CUDA; see :mod:`lpkit.kernels.triton_rows`.

Each function does what the function of its name in :mod:`lpkit.kernels` documents. ``entries``: the rows' slots, if the
per-row values are columns.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from lpkit.kernels.elementwise import OwnStep
from lpkit.kernels.hashes import FACTORS_32
from lpkit.kernels.recording import Entries
from lpkit.kernels.triton_rows import (
    BLOCK,
    KEPT,
    SPAN,
    anything,
    by_numbers,
    by_row,
    compiled,
    highest,
    ids_at,
    mask_spans,
    mask_tile,
    numbers_of,
    of_entropy,
    of_moments,
    over,
    packed,
    step,
    tile,
    write,
)

LEAST = tl.constexpr(1e-10)
LOWEST = tl.constexpr(-1e9)
FIRST, SECOND = (tl.constexpr(factor % 2**32) for factor in FACTORS_32)


@triton.jit
def _mask_by_limit(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Mask logits below a limit that depends on the row's numbers.

    ``KIND``: "far", a distance, times a temperature, below the highest logit; "deviating", a number of standard
    deviations below it; "unlikely", see :func:`lpkit.kernels.mask_unlikely_`.
    """
    numbers, tops = numbers_of(scratch, at)
    parts = at[2]
    given = tl.load(values[0])
    if KIND == "far":
        limit = highest(numbers, parts) - given * tl.load(values[1])
    elif KIND == "deviating":
        top, deviation = of_moments(numbers, parts)
        limit = top - (given * deviation).to(tl.float32)
    else:
        top, total, entropy, _ = of_entropy(numbers, parts, 1.0 / given)
        least = tl.load(values[1])
        least += tl.load(values[2]) * (top / given - total)
        other = tl.load(values[3]) - entropy
        limit = given * (total + tl.where(other < least, other, least))
        limit = tl.where(limit > top, top, limit)  # NaN, where there is a NaN in the row, stays
    mask_spans(logits, tiles, tops, limit)


@triton.jit
def _last_before(flags, which, end):
    """Return the last flagged position before an end; -1 without a flag."""
    return tl.max(tl.where(flags & (which < end), which, -1), 0)


@triton.jit
def _exclude(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Mask a row's tokens that are at least as likely as its threshold, except the least likely of them, unless this
    masks one of its ids. Few spans have such a token: one program reads them all."""
    start, begin, end = logits
    _, _, parts, _, vocab, k = at
    numbers, tops = numbers_of(scratch, at)
    temperature = tl.load(values[0])
    _, total, _, _ = of_entropy(numbers, parts, 1.0 / temperature)
    limit = temperature * (total + tl.load(values[1]))
    which = tl.arange(0, KEPT)
    best = tl.full((SPAN,), float("inf"), tl.float32)
    if limit < float("inf"):  # not NaN
        for first in range(0, end, KEPT * SPAN):
            near = tl.load(tops + first // SPAN + which, mask=first + which * SPAN < end, other=float("nan"))
            span = _last_before(near >= limit, which, KEPT)
            while span >= 0:
                seen = tile(logits, first + span * SPAN, float("inf"), SPAN)
                best = tl.minimum(best, tl.where(seen < limit, float("inf"), seen))
                span = _last_before(near >= limit, which, span)
    least = tl.min(best, 0)
    kept = tl.zeros((KEPT,), tl.int32)
    for offset in range(0, k, KEPT):
        _place, token, real = ids_at(values[2], offset, 1, k, vocab, KEPT)
        value = tl.load(start + begin + token, mask=real, other=float("-inf"))
        kept |= (value > least).to(tl.int32)
    if (least < float("inf")) & (tl.max(kept, 0) == 0):
        tl.debug_barrier()  # other threads read the ids' logits
        for first in range(0, end, KEPT * SPAN):
            near = tl.load(tops + first // SPAN + which, mask=first + which * SPAN < end, other=float("-inf"))
            span = _last_before(near > least, which, KEPT)
            while span >= 0:
                offset = first + span * SPAN
                seen = tile(logits, offset, float("-inf"), SPAN)
                mask_tile(logits, offset, seen > least, seen, SPAN)
                span = _last_before(near > least, which, span)


@triton.jit
def _retemper(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Divide by each row's temperature, and bend the logits."""
    numbers, _ = numbers_of(scratch, at)
    temperature, low = tl.load(values[0]), tl.load(values[1])
    smoothing, curve = tl.load(values[4]), tl.load(values[5])
    top, _, entropy, count = of_entropy(numbers, at[2], 1.0 / temperature)
    share = entropy / tl.maximum(tl.log(count), LEAST)  # one token: the entropy is 0
    share = tl.where(share > LEAST, tl.minimum(share, 1.0), LEAST)  # NaN too
    power = tl.exp2(tl.load(values[3]) * tl.log2(share))
    by = low + (tl.load(values[2]) - low) * power
    top = tl.maximum(top, LOWEST)
    for offset in range(tiles[0], tiles[1], BLOCK):
        seen = tile(logits, offset, float("-inf"), BLOCK)
        there = seen > float("-inf")
        below = tl.maximum(seen - top, LOWEST) / (temperature * by)
        bent = below * below * (below * (curve - 1) - (3 - curve)) * (smoothing / 2)
        below = tl.where(smoothing > 0, bent, below)
        result = tl.where(there, below * temperature, float("-inf"))
        write(logits, offset, result, there, BLOCK)


@triton.jit
def _add_hashed(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Add each row's bias where the hash of its seed and a token is below its limit."""
    seed, limit, bias = tl.load(scratch + at[0] * at[5]), tl.load(values[0]), tl.load(values[1])
    for offset in range(tiles[0], tiles[1], BLOCK):
        state = (offset - logits[1] + tl.arange(0, BLOCK) ^ seed).to(tl.uint32, bitcast=True)
        state = (state ^ (state >> 16)) * FIRST
        state = (state ^ (state >> 13)) * SECOND
        state ^= state >> 16
        chosen = state.to(tl.int32, bitcast=True) < limit
        if anything(chosen):  # a row without this bias chooses no token, and is not even read
            seen = tile(logits, offset, 0.0, BLOCK)
            write(logits, offset, tl.where(chosen, seen + bias, seen), chosen, BLOCK)


@triton.jit
def _kept(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Read the logits that a row keeps; behind them, store 1 if only these are kept."""
    row, _, _, _, vocab, k = at
    scratch += row.to(tl.int64) * (k + 1)
    alive = tl.zeros((KEPT,), tl.int32)
    broken = tl.zeros((KEPT,), tl.int32)
    for offset in range(0, k, KEPT):
        place, token, real = ids_at(values[0], offset, 1, k, vocab, KEPT)
        value = tl.load(logits[0] + logits[1] + token, mask=real, other=float("-inf"))
        tl.store(scratch + place, value, mask=place < k)
        alive |= (value > float("-inf")).to(tl.int32)
        broken |= (value != value).to(tl.int32)  # NaN is the highest of a row, and not above -inf
    wanted = (tl.load(values[0]) >= 0) & (tl.max(alive, 0) > 0) & (tl.max(broken, 0) == 0)
    tl.store(scratch + k, wanted.to(tl.float32))


@triton.jit
def _keep(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Mask a part of a row, and restore its kept logits."""
    start, begin, _ = logits
    row, _, _, _, vocab, k = at
    scratch += row.to(tl.int64) * (k + 1)
    if tl.load(scratch + k) != 0:
        masked = tl.full((BLOCK,), float("-inf"), tl.float32)
        for offset in range(tiles[0], tiles[1], BLOCK):
            write(logits, offset, masked, masked < 0.0, BLOCK)
        tl.debug_barrier()  # other threads restore the kept logits
        for offset in range(0, k, KEPT):
            item, token, real = ids_at(values[0], offset, 1, k, vocab, KEPT)
            place = token + begin
            here = real & (place >= tiles[0]) & (place < tiles[1])
            tl.store(start + place, tl.load(scratch + item, mask=here, other=0.0), mask=here)


def _mask_by(limit: str, numbers: str, *given: Any, **options: Any) -> torch.Tensor:
    # Multiplying and subtracting in one instruction would round once where the operations of torch round twice.
    return by_numbers(numbers, _mask_by_limit, *given, kind=limit, enable_fp_fusion=False, **options)


@cache
def _unit_temperature(device: torch.device) -> torch.Tensor:
    return torch.ones(1, 1, device=device)


def mask_far_below_top_(
    logits: torch.Tensor, distance: torch.Tensor, temperature: torch.Tensor | None = None,
    entries: Entries | None = None,
) -> torch.Tensor:  # fmt: skip
    temperature = _unit_temperature(logits.device) if temperature is None else temperature
    return _mask_by("far", "tops", logits, (distance, temperature), entries or by_row(logits))


def mask_deviations_below_top_(
    logits: torch.Tensor, deviations: torch.Tensor, entries: Entries | None = None
) -> torch.Tensor:
    return _mask_by("deviating", "moments", logits, (deviations,), entries or by_row(logits), dtype=torch.float64)


def mask_unlikely_(logits: torch.Tensor, *values: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    return _mask_by("unlikely", "shares", logits, values, entries or by_row(logits))


def process_rows_(logits: torch.Tensor, process: OwnStep, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Edit whole rows by an author's own operations."""
    rule = compiled(process, process_rows_)
    if process.reads_top:  # "far": from the last part on, which the first launch has just read
        return by_numbers(
            "tops", rule, logits, (), entries, columns, kind="far", block=BLOCK // 2, enable_fp_fusion=False
        )
    return over(rule, logits, entries, columns, entries.active, block=BLOCK // 2, enable_fp_fusion=False)


def exclude_top_choices_(
    logits: torch.Tensor, temperature: torch.Tensor, log_threshold: torch.Tensor, keep: torch.Tensor,
    where: torch.Tensor | None = None, entries: Entries | None = None,
) -> torch.Tensor:  # fmt: skip
    values, entries = (temperature, log_threshold), entries or by_row(logits, where)
    ids = packed(keep)
    return by_numbers("shares", _exclude, logits, values, entries, [ids], k=ids.shape[1], at_once=True)


def dynamic_temperature_(logits: torch.Tensor, *values: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    # A whole tile would take more registers than there are.
    return by_numbers("shares", _retemper, logits, values, entries or by_row(logits), block=BLOCK // 2)


def add_where_hashed_(
    logits: torch.Tensor, seeds: torch.Tensor, limit: torch.Tensor, bias: torch.Tensor, entries: Entries | None = None
) -> torch.Tensor:
    seeds, columns = seeds.to(torch.int32), (limit.to(torch.int32), bias.to(torch.float32))
    return over(_add_hashed, logits, entries or by_row(logits), columns, seeds, k=step(seeds), block=BLOCK)


def keep_ids_(
    logits: torch.Tensor, ids: torch.Tensor, where: torch.Tensor | None = None, entries: Entries | None = None
) -> torch.Tensor:
    entries, columns, k = entries or by_row(logits, where), [packed(ids)], ids.shape[1]
    held = torch.empty(logits.shape[0], k + 1, dtype=torch.float32, device=logits.device)
    over(_kept, logits, entries, columns, held, k=k, at_once=True, warps=1)
    return over(_keep, logits, entries, columns, held, k=k, block=BLOCK)
