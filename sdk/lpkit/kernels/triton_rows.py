"""Common part of the Triton kernels for whole rows: a row in tiles, and a batch's rows in parts.

A row is split over several programs while the batch is smaller than the GPU, so that a single request keeps all
multiprocessors busy too. A first launch stores a few numbers for each part of a row, and the highest logit of each span
of :data:`SPAN` logits. In the second launch each program combines its row's parts, and masks or skips whole spans
without reading them. It goes backwards, to begin with the logits that the first launch read last. So a row is read once
and written once, and no program waits for others.

Rows of a batch have an entry each in tensors of per-row values: their request's slot in columns, or their number.
``tests/engine/test_triton_kernels_ahead.py`` reads the compiled kernels, without a GPU.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from lpkit.kernels.elementwise import OwnStep
from lpkit.kernels.launching import launch
from lpkit.kernels.recording import Entries

BLOCK = 4096  # logits of a tile
SPAN = tl.constexpr(1024)  # logits that share a recorded highest logit: if that is masked, all are, without being read
WORD = tl.constexpr(4)  # logits of one 128-bit word
WARPS = 8  # of a program; with 16 logits per thread, four programs share a multiprocessor's registers
PROGRAMS = 16 * 132  # as many keep a large GPU busy, without a long idle tail
KEPT = tl.constexpr(
    64
)  # values next to a row (ids, highest logits of spans) that are read at a time: each read waits for the memory
MOST_PARTS = 64  # of a row
PARTS = tl.constexpr(MOST_PARTS)
FAR = tl.constexpr(-1e30)  # distance below the top without a share; unlike -inf, it gives no NaN in a product
COLUMNS = 6  # most per-row values that a rule reads
# Logits of a tile for each kind of a row's numbers; half where four numbers are kept for each.
TILES = {"tops": BLOCK, "moments": BLOCK // 2, "shares": BLOCK // 2}
ALIGNED = ("logits", "stride", "vocab", "size")  # arguments that decide the use of 128-bit words


def once(function: Any, aligned: tuple[str, ...] = ()) -> Any:
    """Apply ``triton.jit`` to a kernel that is compiled once: not for some sizes or alignments of its arguments.

    Otherwise a column that a plugin adds would move the others, and a request would wait for a compiler.
    """
    others = [name for name in inspect.signature(function).parameters if name not in aligned and not name.isupper()]
    return triton.jit(do_not_specialize=others)(function)


def over_rows(function: Any) -> Any:
    """Like :func:`once`, for whole rows: compiled for rows that begin at whole words, and for other rows."""
    return once(function, ALIGNED)


@triton.jit
def entry(slots, active, active_step, row):
    """Return (entry of a row, True if the row is edited)."""
    slot = tl.load(slots + row).to(tl.int64)
    return slot, tl.load(active + slot * active_step) != 0


@triton.jit
def ids_at(ids, start, across, k, vocab, BLOCK: tl.constexpr):
    """Return (positions among a row's ids, the ids, True for ids within the vocabulary)."""
    place = start + tl.arange(0, BLOCK)
    token = tl.load(ids + place * across, mask=place < k, other=-1)
    return place, token, (token >= 0) & (token < vocab)


@triton.jit
def bounds(logits, row, stride, vocab):
    """Return (last word-aligned address before a row, the row's begin and end relative to it)."""
    before = row.to(tl.int64) * stride
    whole = before // WORD * WORD  # tells the compiler that it is a multiple, for any stride
    begin = (before - whole).to(tl.int32)
    return logits + whole, begin, begin + vocab


@triton.jit
def _within(offset, begin, end, BLOCK: tl.constexpr):
    """True if a tile lies within the row: then no mask prevents 128-bit words."""
    return (offset >= begin) & (offset + BLOCK <= end)


@triton.jit
def tile(logits, offset, FILL: tl.constexpr, BLOCK: tl.constexpr):
    """Read a tile of a row, with ``FILL`` outside of the row."""
    start, begin, end = logits
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        values = tl.load(start + place)
    else:
        values = tl.load(start + place, mask=(place >= begin) & (place < end), other=FILL)
    return values


@triton.jit
def write(logits, offset, values, changed, BLOCK: tl.constexpr):
    """Write a tile with a change: all of it, in 128-bit words, if it lies within the row."""
    start, begin, end = logits
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        tl.store(start + place, values)
    else:
        tl.store(start + place, values, mask=(place >= begin) & (place < end) & changed)


@triton.jit
def anything(flags):
    """True if a tile has anything to change."""
    return tl.max(flags.to(tl.int32), 0) > 0


@triton.jit
def mask_tile(logits, offset, beyond, values, BLOCK: tl.constexpr):
    """Write -inf over a tile's flagged logits, if there are any."""
    if anything(beyond):
        write(logits, offset, tl.where(beyond, float("-inf"), values), beyond, BLOCK)


@triton.jit
def numbers_of(scratch, at):
    """Return (memory for the four numbers of each of a row's parts, memory for the highest logits of its spans)."""
    row, _, parts, spans, _, _ = at
    scratch += row.to(tl.int64) * (parts * 4 + spans)
    return scratch, scratch + parts * 4


@triton.jit
def mask_spans(logits, tiles, tops, limit):
    """Mask logits below a limit in a part of a row, usually nearly all; a NaN limit masks nothing."""
    first, last = tiles
    if limit > float("-inf"):
        for offset in range(first, last, SPAN):
            top = tl.load(tops + offset // SPAN)
            if top >= limit:
                values = tile(logits, offset, 0.0, SPAN)
                mask_tile(logits, offset, values < limit, values, SPAN)
            elif top > float("-inf"):  # else it is masked already
                masked = tl.full((SPAN,), float("-inf"), tl.float32)
                write(logits, offset, masked, masked < 0.0, SPAN)


@triton.jit
def _number(numbers, which, parts, FILL: tl.constexpr):
    """Return one of the four numbers of each part of a row, with ``FILL`` behind the last part."""
    part = tl.arange(0, PARTS)
    return tl.load(numbers + part * 4 + which, mask=part < parts, other=FILL)


@triton.jit
def highest(numbers, parts):
    """Return a row's highest logit, by the first two numbers of each part; NaN if it has one, as torch's ``amax``."""
    broken = tl.sum(_number(numbers, 1, parts, 0.0), 0) > 0
    return tl.where(broken, float("nan"), tl.max(_number(numbers, 0, parts, float("-inf")), 0))


@triton.jit
def of_entropy(numbers, parts, scale):
    """Return (highest logit, logarithm of the sum of exponentials, entropy, unmasked tokens) of a row.

    Each part has its highest logit; the sum of shares, relative to that logit's; the sum of their products with their
    logarithms; and the number of unmasked tokens.
    """
    best = _number(numbers, 0, parts, float("-inf"))
    top = tl.max(best, 0)
    below = tl.maximum((best - tl.where(top == float("-inf"), 0.0, top)) * scale, FAR)
    total = _number(numbers, 1, parts, 0.0)
    weighed = tl.sum((_number(numbers, 2, parts, 0.0) + total * below) * tl.exp(below), 0)
    total = tl.sum(total * tl.exp(below), 0)
    log_total = tl.where(total == 0, float("nan"), tl.log(total))  # NaN: all is masked
    count = tl.sum(_number(numbers, 3, parts, 0.0), 0)
    return top, top * scale + log_total, log_total - weighed / total, count


@triton.jit
def of_moments(numbers, parts):
    """Return (highest logit, standard deviation in float64) of a row.

    Each part has its highest logit, and for its unmasked logits the number, the mean, and the sum of squares around it.
    """
    top = tl.max(_number(numbers, 0, parts, float("-inf")), 0)
    count = _number(numbers, 1, parts, 0.0).to(tl.float64)
    mean = _number(numbers, 2, parts, 0.0).to(tl.float64)
    squares = _number(numbers, 3, parts, 0.0).to(tl.float64)
    whole = tl.sum(count, 0)
    away = mean - tl.sum(count * mean, 0) / whole
    return top, tl.sqrt(tl.sum(squares + count * away * away, 0) / whole)


@over_rows
def _over_row(
    logits, slots, active, scratch, first, second, third, fourth, fifth, sixth,
    active_step, first_step, second_step, third_step, fourth_step, fifth_step, sixth_step,
    stride, vocab, spans, parts, size, k,
    RULE: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Apply a rule to a part of a row, or to all of it.

    ``RULE`` gets the row's logits, see :func:`bounds`; begin and end of the part; the scratch memory; the addresses of
    the row's values; (row, part, parts, spans, vocabulary, k).
    """
    row, part = tl.program_id(0), tl.program_id(1)
    if (KIND == "far") | (KIND == "deviating") | (KIND == "unlikely"):
        row, part = tl.num_programs(0) - 1 - row, tl.num_programs(1) - 1 - part
    slot, edited = entry(slots, active, active_step, row)
    if edited:
        ours = bounds(logits, row, stride, vocab)
        tiles = part * size, min(part * size + size, ours[2])
        values = (
            first + slot * first_step,
            second + slot * second_step,
            third + slot * third_step,
            fourth + slot * fourth_step,
            fifth + slot * fifth_step,
            sixth + slot * sixth_step,
        )
        RULE(ours, tiles, scratch, values, (row, part, parts, spans, vocab, k), KIND, BLOCK)


@triton.jit
def _statistics(logits, tiles, scratch, values, at, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Store the highest logit of each span, and four numbers for each part of each row.

    ``KIND``: "tops", for the highest logit and the number of NaN; "moments" and "shares", for the input of
    :func:`of_moments` and :func:`of_entropy`. Moments take one pass, by the updates of Welford (1962) and Chan, Golub
    and LeVeque (1979).
    """
    _, part, _, spans, _, _ = at
    numbers, tops = numbers_of(scratch, at)
    scale = 1.0
    if KIND == "shares":
        scale /= tl.load(values[0])
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    first = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    for offset in range(tiles[0], tiles[1], BLOCK):
        seen = tile(logits, offset, float("-inf"), BLOCK)
        span = offset // SPAN + tl.arange(0, BLOCK // SPAN)
        tl.store(tops + span, tl.max(tl.reshape(seen, (BLOCK // SPAN, SPAN)), 1), mask=span < spans)
        higher = tl.maximum(best, seen)
        if KIND == "tops":
            count += tl.where(seen != seen, 1.0, 0.0)
        elif KIND == "moments":
            there = seen != float("-inf")  # NaN too, which makes the row's numbers NaN
            count += tl.where(there, 1.0, 0.0)
            away = tl.where(there, seen - first, 0.0)
            first += away / tl.maximum(count, 1.0)
            second += tl.where(there, away * (seen - first), 0.0)
        else:
            origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN
            moved = tl.maximum((best - origin) * scale, FAR)
            below = tl.maximum((seen - origin) * scale, FAR, propagate_nan=tl.PropagateNan.ALL)
            share = tl.exp(below)
            second = (second + first * moved) * tl.exp(moved) + share * below
            first = first * tl.exp(moved) + share
            count += tl.where(seen > float("-inf"), 1.0, 0.0)
        best = higher
    numbers += part * 4
    top = tl.max(best, 0)
    whole = tl.sum(count, 0)
    tl.store(numbers, top)
    if KIND == "tops":
        tl.store(numbers + 1, whole)
    elif KIND == "moments":
        middle = tl.sum(count * first, 0) / tl.maximum(whole, 1.0)
        tl.store(numbers + 1, whole)
        tl.store(numbers + 2, middle)
        tl.store(numbers + 3, tl.sum(second + count * (first - middle) * (first - middle), 0))
    else:
        moved = tl.maximum((best - tl.where(top == float("-inf"), 0.0, top)) * scale, FAR)
        tl.store(numbers + 1, tl.sum(first * tl.exp(moved), 0))
        tl.store(numbers + 2, tl.sum((second + first * moved) * tl.exp(moved), 0))
        tl.store(numbers + 3, whole)


@cache
def compiled(step: OwnStep, caller: Any) -> Any:
    """Return the function of an author's own step. Its text has names of a table and of the caller's module, and
    numbers, and nothing of the author's."""
    scope = {**caller.__globals__}
    file = f"<lpkit {step.name}>"
    linecache.cache[file] = len(step.source), None, step.source.splitlines(True), file  # where Triton reads it
    exec(compile(step.source, file, "exec"), scope)
    return scope[step.name]


def suits(logits: torch.Tensor) -> bool:
    """True if the kernels can take these logits."""
    return logits.dtype == torch.float32 and logits.stride(1) == 1 and logits.numel() > 0


@cache
def split(rows: int, vocab: int) -> tuple[int, int]:
    """Return (parts of a row, tokens of a part)."""
    tiles = ratio_up(vocab, BLOCK)
    size = ratio_up(tiles, min(MOST_PARTS, ratio_up(PROGRAMS, rows))) * BLOCK
    return ratio_up(vocab, size), size


def ratio_up(number: int, by: int) -> int:
    return -(-number // by)


def grid_of(logits: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int, int, int, int]]:
    """Return (rows, parts of a row), and the kernels' arguments: stride, vocabulary, spans, parts, tokens of a part."""
    rows, vocab = logits.shape
    reach = vocab + WORD.value - 1  # a row may begin within a word
    parts, size = split(rows, reach)
    return (rows, parts), (logits.stride(0), vocab, ratio_up(reach, SPAN.value), parts, size)


def by_row(logits: torch.Tensor, where: torch.Tensor | None = None) -> Entries:
    """Return one entry for each row of ``logits``; ``where``, bool ``[n, 1]``, has the rows to edit."""
    rows = logits.shape[0]
    entries = _numbered(logits.device, max(1024, 1 << (rows - 1).bit_length()))
    return entries if where is None else entries._replace(active=where.expand(rows, 1))


@cache
def _numbered(device: torch.device, count: int) -> Entries:
    yes = torch.ones(1, 1, dtype=torch.bool, device=device)
    return Entries(torch.arange(count, device=device), yes.expand(count, 1))


def step(values: torch.Tensor) -> int:
    """Return the elements from one entry to the next: none if all entries share one value."""
    return 0 if values.shape[0] == 1 else values.stride(0)


def packed(ids: torch.Tensor) -> torch.Tensor:
    """Return the ids in memory in which a row's ids lie side by side."""
    return ids if ids.stride(1) == 1 else ids.contiguous()


def over(
    rule: Any, logits: torch.Tensor, entries: Entries, values: Sequence[torch.Tensor], scratch: torch.Tensor,
    kind: str = "", k: int = 0, block: int = SPAN.value, at_once: bool = False, warps: int = WARPS, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Apply a rule to each part of each row, or to all of it ``at_once``; ``k``: its ids, or steps between seeds."""
    (rows, parts), sizes = grid_of(logits)
    values = (*values, *(entries.active,) * (COLUMNS - len(values)))  # what is not read
    args = (logits, entries.slots, entries.active, scratch, *values, *map(step, (entries.active, *values)))
    options |= {"RULE": rule, "KIND": kind, "BLOCK": block}
    launch(_over_row, (rows, 1 if at_once else parts), (*args, *sizes, k), **options, num_warps=warps)
    return logits


def by_numbers(
    numbers: str, rule: Any, logits: torch.Tensor, values: Sequence[torch.Tensor], entries: Entries,
    ids: Sequence[torch.Tensor] = (), dtype: torch.dtype = torch.float32, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Compute the numbers of each row, ``[n, 4 * parts + spans]``, and apply a rule that depends on them."""
    (rows, parts), (_, _, spans, _, _) = grid_of(logits)
    values = [*(item.to(dtype) for item in values), *ids]
    scratch = torch.empty(rows, parts * 4 + spans, dtype=torch.float32, device=logits.device)
    over(_statistics, logits, entries, values[:1], scratch, numbers, block=TILES[numbers])
    return over(rule, logits, entries, values, scratch, **options)
