"""Common part of the Triton kernels for whole rows: a row in tiles, and a batch's rows in parts.

A row is split over several programs while the batch is smaller than the GPU, so that a single request keeps all
multiprocessors busy too. Tiles in which nothing changes are not written, and rows whose limit masks nothing are not
read. ``tests/engine/test_triton_kernels_ahead.py`` reads the compiled kernels, without a GPU.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from lpkit.kernels.triton_parts import MOST_PARTS

KIND = "Triton"

BLOCK = 4096
PROGRAMS = 16 * 132
"""Number of programs that keep a large GPU busy, without a long idle tail."""

WARPS = 8
"""Warps of a program: 16 logits per thread, so that four programs share a multiprocessor's registers; a span has one
word."""

KEPT = 64
"""Values next to a row (ids, highest logits of spans) that are read at a time: each read waits for the memory."""

SPAN = 1024
"""Logits of a row that share a recorded highest logit: if that is masked, all are, without being read."""

WORD = tl.constexpr(4)
"""Logits of one 128-bit word."""


ALIGNED = ("logits", "stride", "vocab", "size")
"""Arguments of a kernel that decide the use of 128-bit words."""


def over_rows(function: Any) -> Any:
    """Apply ``triton.jit`` to a kernel for whole rows.

    It is compiled for rows that begin at whole words, and for other rows, but not for the alignment of a row's own
    numbers. Otherwise a column that a plugin adds would move the others, and a request would wait for a compiler.
    """
    others = [name for name in inspect.signature(function).parameters if name not in ALIGNED and not name.isupper()]
    return triton.jit(do_not_specialize=others)(function)


@triton.jit
def _entry(slots, own, own_step, row):  # type: ignore[no-untyped-def]
    """Return (entry of a row, True if the row is edited)."""
    slot = tl.load(slots + row)
    return slot, tl.load(own + slot * own_step) != 0


@triton.jit
def _row(logits, row, stride, vocab):  # type: ignore[no-untyped-def]
    """Return (last word-aligned address before a row, the row's begin and end relative to it)."""
    before = row.to(tl.int64) * stride
    whole = before // WORD * WORD  # tells the compiler that it is a multiple, for any stride
    begin = (before - whole).to(tl.int32)
    return logits + whole, begin, begin + vocab


@triton.jit  # type: ignore[untyped-decorator]
def _within(offset, begin, end, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """True if a tile lies within the row: then no mask prevents 128-bit words."""
    return (offset >= begin) & (offset + BLOCK <= end)


@triton.jit  # type: ignore[untyped-decorator]
def _tile(start, offset, begin, end, FILL: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Read a tile of a row, with ``FILL`` outside of the row."""
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        values = tl.load(start + place)
    else:
        values = tl.load(start + place, mask=(place >= begin) & (place < end), other=FILL)
    return values


@triton.jit
def _any(flags):  # type: ignore[no-untyped-def]
    """True if a tile has anything to change."""
    return tl.max(flags.to(tl.int32), 0) > 0


@triton.jit  # type: ignore[untyped-decorator]
def _write(start, offset, begin, end, values, changed, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Write a tile with a change: all of it, in 128-bit words, if it lies within the row."""
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        tl.store(start + place, values)
    else:
        tl.store(start + place, values, mask=(place >= begin) & (place < end) & changed)


def suits(logits: torch.Tensor) -> bool:
    """True if the kernels can take these logits."""
    return logits.dtype == torch.float32 and logits.stride(1) == 1 and logits.numel() > 0


@cache
def split(rows: int, vocab: int) -> tuple[int, int]:
    """Return (parts of a row, tokens of a part)."""
    tiles = _ratio_up(vocab, BLOCK)
    size = _ratio_up(tiles, min(MOST_PARTS, _ratio_up(PROGRAMS, rows))) * BLOCK
    return _ratio_up(vocab, size), size


def _ratio_up(number: int, by: int) -> int:
    return -(-number // by)


def _grid(logits: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """Return (rows, parts of a row), and the kernels' arguments: stride, vocabulary, parts, tokens of a part."""
    rows, vocab = logits.shape
    parts, size = split(rows, vocab + WORD.value - 1)  # a row may begin within a word
    return (rows, parts), (logits.stride(0), vocab, parts, size)


class Entries(NamedTuple):
    """The entry of each row in tensors of per-row values: its slot in columns, or its number.

    Attributes:
        slots: int64 ``[rows]``, contiguous.
        own: bool, True for entries whose rows are edited.
        step: elements from one entry of ``own`` to the next.
        size: number of entries.
    """

    slots: torch.Tensor
    own: torch.Tensor
    step: int
    size: int


def by_row(logits: torch.Tensor, where: torch.Tensor | None = None) -> Entries:
    """Return one entry for each row of ``logits``; ``where``, bool ``[n, 1]``, has the rows to edit."""
    rows = logits.shape[0]
    numbers, yes = _numbers(logits.device, max(1024, 1 << (rows - 1).bit_length()))
    if where is None:
        return Entries(numbers, yes, 0, rows)
    where = where.expand(rows, 1)
    return Entries(numbers, where, where.stride(0), rows)


@cache
def _numbers(device: torch.device, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(count, device=device), torch.ones(1, dtype=torch.bool, device=device)


def _per_row(values: torch.Tensor, entries: Entries, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, int]:
    """Return ``[entries, 1]`` and the elements from one entry to the next; columns are strided, and not copied."""
    if values.dtype != dtype or values.shape != (entries.size, 1):  # each comparison takes the host a while
        values = values.to(dtype).expand(entries.size, 1)
    return values, values.stride(0)
