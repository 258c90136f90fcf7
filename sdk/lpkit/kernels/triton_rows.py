"""A row in tiles, and a batch's rows in parts: what the Triton kernels for whole rows share.

A row is split over several programs while the batch is smaller than the GPU, so that a single request keeps all
multiprocessors busy too. Tiles in which nothing changes are not written, and rows whose limit masks nothing are not
read. ``make kernels`` shows what the compiler makes of the kernels, without a GPU; :mod:`lpkit.kernels.traffic` says
how much memory each of them moves.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import triton
import triton.language as tl

from lpkit.kernels.triton_parts import MOST_PARTS

KIND = "Triton"

BLOCK = 4096
PROGRAMS = 16 * 132
"""Programs that keep a large GPU busy, and leave none of it idle for long when its last ones end."""

WARPS = 8
"""Of a program: 16 logits per thread, so that four programs share a multiprocessor's registers; of a span, one word."""

KEPT = 64
"""Of what stands beside a row (ids, its spans' highest logits), how many are looked at at a time: each look waits for
the memory."""

WORD = tl.constexpr(4)
"""Logits of one 128-bit word."""


ALIGNED = ("logits", "stride", "vocab", "size")
"""Of a kernel's arguments, those that 128-bit words depend on."""


def over_rows(function: Any) -> Any:
    """``triton.jit`` for a kernel that goes over whole rows.

    It is compiled for rows that begin at whole words, and for others, but not for how a row's own numbers lie: a
    column that a plugin adds moves the others, and a request would wait for a compiler.
    """
    others = [name for name in inspect.signature(function).parameters if name not in ALIGNED and not name.isupper()]
    return triton.jit(do_not_specialize=others)(function)


@triton.jit
def _row(logits, row, stride, vocab):  # type: ignore[no-untyped-def]
    """A row, from the last address before it that 128-bit words begin at: (that address, the row's begin and end)."""
    before = row.to(tl.int64) * stride
    whole = before // WORD * WORD  # which tells the compiler that it is a multiple, whatever the stride is
    begin = (before - whole).to(tl.int32)
    return logits + whole, begin, begin + vocab


@triton.jit  # type: ignore[untyped-decorator]
def _within(offset, begin, end, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Whether a tile lies within the row: then no mask keeps the compiler from 128-bit words."""
    return (offset >= begin) & (offset + BLOCK <= end)


@triton.jit  # type: ignore[untyped-decorator]
def _tile(start, offset, begin, end, FILL: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """A tile of a row, and ``FILL`` outside of the row."""
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        values = tl.load(start + place)
    else:
        values = tl.load(start + place, mask=(place >= begin) & (place < end), other=FILL)
    return values


@triton.jit
def _any(flags):  # type: ignore[no-untyped-def]
    """Whether there is anything to change in a tile."""
    return tl.max(flags.to(tl.int32), 0) > 0


@triton.jit  # type: ignore[untyped-decorator]
def _write(start, offset, begin, end, values, changed, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Write a tile in which something has changed: all of it, in 128-bit words, if it lies within the row."""
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        tl.store(start + place, values)
    else:
        tl.store(start + place, values, mask=(place >= begin) & (place < end) & changed)


def suits(logits: torch.Tensor) -> bool:
    """Whether the kernels can take these logits."""
    return logits.dtype == torch.float32 and logits.stride(1) == 1 and logits.numel() > 0


def split(rows: int, vocab: int) -> tuple[int, int]:
    """(parts of a row, tokens of a part)."""
    tiles = _ratio_up(vocab, BLOCK)
    size = _ratio_up(tiles, min(MOST_PARTS, _ratio_up(PROGRAMS, rows))) * BLOCK
    return _ratio_up(vocab, size), size


def _ratio_up(number: int, by: int) -> int:
    return -(-number // by)


def _grid(logits: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """(rows, parts of a row), and what the kernels are told: stride, vocabulary, parts, tokens of a part."""
    rows, vocab = logits.shape
    parts, size = split(rows, vocab + WORD.value - 1)  # a row may begin within a word
    return (rows, parts), (logits.stride(0), vocab, parts, size)


def _per_row(
    values: torch.Tensor, logits: torch.Tensor, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, int]:
    """``[n, 1]``, and from one row to the next how many elements; columns come strided, and are not copied."""
    if values.dtype != dtype or values.shape != (logits.shape[0], 1):  # each of the two takes the host a while
        values = values.to(dtype).expand(logits.shape[0], 1)
    return values, values.stride(0)
