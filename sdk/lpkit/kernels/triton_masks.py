"""Masks and biases of whole rows as Triton kernels for CUDA; see :mod:`lpkit.kernels.triton_rows`.

Each function does what the function of its name in :mod:`lpkit.kernels` documents. ``entries``: the rows' slots, if the
per-row values are columns.
"""

from __future__ import annotations

import torch
import triton.language as tl

from lpkit.kernels.hashes import FACTORS_32
from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import (
    BLOCK,
    KEPT,
    WARPS,
    Entries,
    anything,
    bounds,
    by_row,
    entry,
    grid_of,
    over_rows,
    per_row,
    tile,
    write,
)


@over_rows
def _add_hashed(
    logits, slots, own, seeds, limits, biases,
    stride, own_step, seeds_step, limits_step, biases_step, vocab, size,
    FIRST: tl.constexpr, SECOND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add each row's bias where the hash of its seed and a token is below its limit."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = entry(slots, own, own_step, row)
    seed, bias = tl.load(seeds + row * seeds_step), tl.load(biases + slot * biases_step)
    limit = tl.where(edited, tl.load(limits + slot * limits_step), -(2**31))
    start, begin, end = bounds(logits, row, stride, vocab)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        state = (offset - begin + tl.arange(0, BLOCK) ^ seed).to(tl.uint32, bitcast=True)
        state = (state ^ (state >> 16)) * FIRST
        state = (state ^ (state >> 13)) * SECOND
        state ^= state >> 16
        chosen = state.to(tl.int32, bitcast=True) < limit
        if anything(chosen):  # a row without this bias chooses no token, and is not even read
            values = tile(start, offset, begin, end, 0.0, BLOCK)
            write(start, offset, begin, end, tl.where(chosen, values + bias, values), chosen, BLOCK)


@over_rows
def _kept(logits, ids, slots, own, held, stride, ids_stride, own_step, vocab, k, IDS: tl.constexpr):
    """Read the logits that a row keeps; behind them, store 1 if only these are kept."""
    row = tl.program_id(0).to(tl.int64)
    slot, wanted = entry(slots, own, own_step, row)
    ids += slot * ids_stride
    held += row * (k + 1)
    alive = tl.zeros((IDS,), tl.int32)
    broken = tl.zeros((IDS,), tl.int32)
    for offset in range(0, k, IDS):
        place = offset + tl.arange(0, IDS)
        token = tl.load(ids + place, mask=place < k, other=-1)
        real = (token >= 0) & (token < vocab)
        value = tl.load(logits + row * stride + token, mask=real, other=float("-inf"))
        tl.store(held + place, value, mask=place < k)
        alive |= (value > float("-inf")).to(tl.int32)
        broken |= (value != value).to(tl.int32)  # NaN is the highest of a row, and not above -inf
    wanted &= (tl.load(ids) >= 0) & (tl.max(alive, 0) > 0) & (tl.max(broken, 0) == 0)
    tl.store(held + k, wanted.to(tl.float32))


@over_rows
def _keep(logits, ids, slots, held, stride, ids_stride, vocab, k, size, IDS: tl.constexpr, BLOCK: tl.constexpr):
    """Mask a part of a row, and restore its kept logits."""
    row, part = tl.program_id(0), tl.program_id(1)
    held += row.to(tl.int64) * (k + 1)
    if tl.load(held + k) != 0:
        start, begin, end = bounds(logits, row, stride, vocab)
        first, last = part * size, min(part * size + size, end)
        masked = tl.full((BLOCK,), float("-inf"), tl.float32)
        for offset in range(first, last, BLOCK):
            write(start, offset, begin, end, masked, masked < 0.0, BLOCK)
        tl.debug_barrier()  # other threads restore the kept logits
        ids += tl.load(slots + row) * ids_stride
        for offset in range(0, k, IDS):
            item = offset + tl.arange(0, IDS)
            token = tl.load(ids + item, mask=item < k, other=-1)
            place = token + begin
            here = (token >= 0) & (token < vocab) & (place >= first) & (place < last)
            value = tl.load(held + item, mask=here, other=0.0)
            tl.store(start + place, value, mask=here)


def add_where_hashed_(
    logits: torch.Tensor,
    seeds: torch.Tensor,
    limit: torch.Tensor,
    bias: torch.Tensor,
    entries: Entries | None = None,
) -> torch.Tensor:
    grid, (stride, vocab, _, _, size) = grid_of(logits)
    first, second = (factor % 2**32 for factor in FACTORS_32)
    entries = entries or by_row(logits)
    (limit, limit_step), (bias, bias_step) = per_row(limit, entries, torch.int32), per_row(bias, entries)
    seeds, seeds_step = per_row(seeds, by_row(logits), torch.int32)
    steps = (stride, entries.step, seeds_step, limit_step, bias_step, vocab, size)
    given = (logits, entries.slots, entries.own, seeds, limit, bias, *steps)
    launch(_add_hashed, grid, given, FIRST=first, SECOND=second, BLOCK=BLOCK, num_warps=WARPS)
    return logits


def keep_ids_(
    logits: torch.Tensor, ids: torch.Tensor, where: torch.Tensor | None = None, entries: Entries | None = None
) -> torch.Tensor:
    slots, own, own_step, _ = entries or by_row(logits, where)
    grid, (stride, vocab, _, _, size) = grid_of(logits)
    k, ids = ids.shape[1], ids if ids.stride(1) == 1 else ids.contiguous()
    held = torch.empty(grid[0], k + 1, dtype=torch.float32, device=logits.device)
    sizes = (stride, ids.stride(0), own_step, vocab, k)
    launch(_kept, grid[:1], (logits, ids, slots, own, held, *sizes), IDS=KEPT, num_warps=1)
    sizes = (stride, ids.stride(0), vocab, k, size)
    launch(_keep, grid, (logits, ids, slots, held, *sizes), IDS=KEPT, BLOCK=BLOCK, num_warps=WARPS)
    return logits
