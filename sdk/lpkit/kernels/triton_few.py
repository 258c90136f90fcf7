"""Triton kernels of sparse rules for CUDA: a few logits per row, each in one launch.

Sizes and strides are run-time arguments, so that no batch has to wait for a compiler.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.recording import Entries
from lpkit.kernels.triton_rows import by_row, ids_at, once, packed, ratio_up
from lpkit.kernels.triton_sequences import WARPS, over_texts, values_of

BLOCK = 256  # elements of a row that a program reads, writes or computes
LISTED = 1024  # elements of a row that a program reads at a time if it has the row to itself


@once
def _at_ids(
    logits, rows, ids, values,
    number, stride, across, step, ids_stride, ids_across, values_stride, values_across, k, vocab,
    MODE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Read or write logits at each row's ids. Ids outside read the first or the last token, and write nothing.

    ``MODE``: "read" stores ``values``; "write" writes them; "number" writes ``number``.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += tl.load(rows + row * step) * stride
    place, token, real = ids_at(ids + row * ids_stride, tl.program_id(1) * BLOCK, ids_across, k, vocab, BLOCK)
    values += row * values_stride + place * values_across
    if MODE == "read":
        token = tl.minimum(tl.maximum(token, 0), vocab - 1)
        tl.store(values, tl.load(logits + token * across, mask=place < k, other=0.0), mask=place < k)
    elif MODE == "write":
        tl.store(logits + token * across, tl.load(values, mask=real, other=0.0), mask=real)
    else:
        tl.store(logits + token * across, tl.full((BLOCK,), 0.0, tl.float32) + number, mask=real)


@triton.jit
def _mask_ids(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Mask a row's ids, and restore them if no other token is left. Reads only up to the first tile with an unmasked
    token."""
    row, _, edited, _, _ = at
    ids, (_, vocab, _), width = values_of(columns[0], row), sizes, columns[0][2]
    k = tl.where(edited, width, 0)
    held = scratch + row * width
    named = 0
    for start in range(0, k, BLOCK):
        place, token, real = ids_at(ids, start, 1, k, vocab, BLOCK)
        tl.store(held + place, tl.load(logits + token, mask=real, other=0.0), mask=real)
        named = tl.maximum(named, tl.max(real.to(tl.int32), 0))
    if named > 0:
        tl.debug_barrier()  # read all before writing: an id may occur twice
        for start in range(0, k, BLOCK):
            place, token, real = ids_at(ids, start, 1, k, vocab, BLOCK)
            tl.store(logits + token, float("-inf"), mask=real)
        tl.debug_barrier()
        left = 0
        offset = 0
        while (offset < vocab) & (left == 0):
            token = offset + tl.arange(0, BLOCK)
            value = tl.load(logits + token, mask=token < vocab, other=float("-inf"))
            left = tl.max((value > float("-inf")).to(tl.int32), 0)
            offset += BLOCK
        if left == 0:
            for start in range(0, k, BLOCK):
                place, token, real = ids_at(ids, start, 1, k, vocab, BLOCK)
                tl.store(logits + token, tl.load(held + place, mask=real, other=0.0), mask=real)


def read(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return ``logits[rows, ids.clamp(0, vocab - 1)]`` for rows ``[n]`` and ids ``[n, k]``."""
    values = torch.empty(ids.shape, dtype=logits.dtype, device=logits.device)
    _over_ids("read", logits, rows, ids, values)
    return values


def write(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, values: torch.Tensor | float) -> None:
    """Set ``logits[rows, ids] = values`` where the ids are within the vocabulary; values broadcast to ``[n, k]``."""
    if isinstance(values, torch.Tensor):
        _over_ids("write", logits, rows, ids, values.to(logits.dtype).expand(ids.shape))
    else:
        _over_ids("number", logits, rows, ids, logits, float(values))


def _over_ids(
    mode: str, logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, values: torch.Tensor, number: float = 0.0
) -> None:
    (n, k), vocab = ids.shape, logits.shape[1]
    if n and k:
        strides = (*logits.stride(), rows.stride(0), *ids.stride(), *values.stride())
        given = (logits, rows, ids, values, number, *strides, k, vocab)
        launch(_at_ids, (n, ratio_up(k, BLOCK)), given, MODE=mode, BLOCK=BLOCK, num_warps=WARPS)


def mask_ids_(logits: torch.Tensor, ids: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_ids_`. A row with a NaN behind a remaining token is masked all the same.
    ``entries``: the rows to edit; each has its own ids."""
    if logits.stride(1) != 1:
        return logits.copy_(mask_ids_(logits.contiguous(), ids, entries))
    if ids.numel():
        held = torch.empty(ids.numel(), 1, dtype=logits.dtype, device=logits.device)
        entries = (entries or by_row(logits))._replace(texts=None)
        over_texts(_mask_ids, logits, entries, (packed(ids),), held, LISTED)
    return logits
