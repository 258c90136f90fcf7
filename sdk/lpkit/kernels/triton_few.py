"""Triton kernels of sparse rules for CUDA: a few logits per row, each in one launch.

Sizes and strides are run-time arguments, so that no batch has to wait for a compiler.
"""

from __future__ import annotations

import torch
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import Entries, by_row, entry, once, ratio_up

BLOCK = 256
"""Elements of a row that a program reads, writes or computes."""

WARPS = 4

LISTED = 1024
"""Elements of a row that a program reads at a time if it has the row to itself."""


@once
def _read(logits, rows, ids, found, stride, across, step, ids_stride, ids_across, k, last, BLOCK: tl.constexpr):
    """Read logits at each row's ids; ids outside are moved to the first or the last token."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < k
    token = tl.load(ids + row * ids_stride + place * ids_across, mask=inside, other=0)
    token = tl.minimum(tl.maximum(token, 0), last)
    values = tl.load(logits + tl.load(rows + row * step) * stride + token * across, mask=inside, other=0.0)
    tl.store(found + row * k + place, values, mask=inside)


@once
def _write(
    logits, rows, ids, values,
    number, stride, across, step, ids_stride, ids_across, values_stride, values_across, k, last,
    NUMBER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write logits at each row's ids; ids outside write nothing. ``NUMBER``: one value for all."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(ids + row * ids_stride + place * ids_across, mask=place < k, other=-1)
    real = (token >= 0) & (token <= last)
    if NUMBER:
        value = tl.full((BLOCK,), 0.0, tl.float32) + number
    else:
        value = tl.load(values + row * values_stride + place * values_across, mask=real, other=0.0)
    tl.store(logits + tl.load(rows + row * step) * stride + token * across, value, mask=real)


@once
def _mask_ids(
    logits, slots, own, ids, held,
    own_step, stride, across, ids_stride, ids_across, width, last,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Mask a row's ids, and restore them if no other token is left. Reads only up to the first tile with an unmasked
    token."""
    row = tl.program_id(0).to(tl.int64)
    _, edited = entry(slots, own, own_step, row)
    k = tl.where(edited, width, 0)
    logits += row * stride
    ids += row * ids_stride
    held += row * width
    named = 0
    for start in range(0, k, BLOCK):
        place = start + tl.arange(0, BLOCK)
        token = tl.load(ids + place * ids_across, mask=place < k, other=-1)
        real = (token >= 0) & (token <= last)
        tl.store(held + place, tl.load(logits + token * across, mask=real, other=0.0), mask=real)
        named = tl.maximum(named, tl.max(real.to(tl.int32), 0))
    if named > 0:
        tl.debug_barrier()  # read all before writing: an id may occur twice
        for start in range(0, k, BLOCK):
            place = start + tl.arange(0, BLOCK)
            token = tl.load(ids + place * ids_across, mask=place < k, other=-1)
            tl.store(logits + token * across, float("-inf"), mask=(token >= 0) & (token <= last))
        tl.debug_barrier()
        left = 0
        offset = 0
        while (offset <= last) & (left == 0):
            token = offset + tl.arange(0, BLOCK)
            value = tl.load(logits + token * across, mask=token <= last, other=float("-inf"))
            left = tl.max((value > float("-inf")).to(tl.int32), 0)
            offset += BLOCK
        if left == 0:
            for start in range(0, k, BLOCK):
                place = start + tl.arange(0, BLOCK)
                token = tl.load(ids + place * ids_across, mask=place < k, other=-1)
                real = (token >= 0) & (token <= last)
                tl.store(logits + token * across, tl.load(held + place, mask=real, other=0.0), mask=real)


@once
def _add(
    logits, slots, own, ids, values, found,
    stride, own_step, ids_stride, values_stride, k, vocab,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a row's values to the logits of its ids."""
    row = tl.program_id(0).to(tl.int64)
    slot, edited = entry(slots, own, own_step, row)
    if edited:
        logits += row * stride
        ids += slot * ids_stride
        for start in range(0, k, BLOCK):
            place = start + tl.arange(0, BLOCK)
            token = tl.load(ids + place, mask=place < k, other=-1)
            real = (token >= 0) & (token < vocab)
            value = tl.load(logits + token, mask=real, other=0.0)
            value += tl.load(values + slot * values_stride + place, mask=real, other=0.0)
            tl.store(found + row * k + place, value, mask=real)
        tl.debug_barrier()  # read all before writing: an id may occur twice
        for start in range(0, k, BLOCK):
            place = start + tl.arange(0, BLOCK)
            token = tl.load(ids + place, mask=place < k, other=-1)
            real = (token >= 0) & (token < vocab)
            tl.store(logits + token, tl.load(found + row * k + place, mask=real, other=0.0), mask=real)


def read(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return ``logits[rows, ids.clamp(0, last)]`` for rows ``[n]`` and ids ``[n, k]``."""
    found = torch.empty(ids.shape, dtype=logits.dtype, device=logits.device)
    if found.numel():
        strides = (*logits.stride(), rows.stride(0), *ids.stride())
        given = (logits, rows, ids, found, *strides, ids.shape[1], logits.shape[1] - 1)
        launch(_read, _grid(ids), given, BLOCK=BLOCK, num_warps=WARPS)
    return found


def write(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, values: torch.Tensor | float) -> None:
    """Set ``logits[rows, ids] = values`` where the ids are within the vocabulary; values broadcast to ``[n, k]``."""
    if not ids.numel():
        return
    number = isinstance(values, float | int)
    spread = logits if number else values.to(logits.dtype).expand(ids.shape)  # type: ignore[union-attr]
    strides = (*logits.stride(), rows.stride(0), *ids.stride(), *spread.stride())
    sizes = (ids.shape[1], logits.shape[1] - 1)
    one = float(values) if number else 0.0
    given = (logits, rows, ids, spread, one, *strides, *sizes)
    launch(_write, _grid(ids), given, NUMBER=number, BLOCK=BLOCK, num_warps=WARPS)


def mask_ids_(logits: torch.Tensor, ids: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_ids_`. A row with a NaN behind a remaining token is masked all the same.
    ``entries``: the rows to edit, of which each has its own ids."""
    if ids.numel():
        slots, own, own_step, _ = entries or by_row(logits)
        held = torch.empty(ids.shape, dtype=logits.dtype, device=logits.device)
        sizes = (own_step, *logits.stride(), *ids.stride(), ids.shape[1], logits.shape[1] - 1)
        given = (logits, slots, own, ids, held, *sizes)
        launch(_mask_ids, (ids.shape[0],), given, BLOCK=LISTED, num_warps=WARPS)
    return logits


def add_to_ids_(logits: torch.Tensor, ids: torch.Tensor, values: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Add the columns' values to the logits of the columns' ids, ``[slots + 1, k]`` each."""
    rows, vocab = logits.shape
    found = torch.empty(rows, ids.shape[1], dtype=torch.float32, device=logits.device)
    sizes = (logits.stride(0), entries.step, ids.stride(0), values.stride(0), ids.shape[1], vocab)
    launch(_add, (rows,), (logits, *entries[:2], ids, values, found, *sizes), BLOCK=LISTED, num_warps=WARPS)
    return logits


def attempt_few(device: torch.device) -> None:
    """Run each kernel once, which compiles it."""
    logits, ids = torch.zeros(2, 8, device=device), torch.zeros(2, 3, dtype=torch.int64, device=device)
    rows = torch.arange(2, device=device)
    write(logits, rows, ids, read(logits, rows, ids))
    write(logits, rows, ids, 1.0)
    mask_ids_(logits, ids)
    add_to_ids_(logits, ids, logits, Entries(rows, ids[:, 0] > 0, 1, 2))


def _grid(elements: torch.Tensor) -> tuple[int, int]:
    return elements.shape[0], ratio_up(elements.shape[1], BLOCK)
