"""Functions of :mod:`lpkit.sequences` as Triton kernels for CUDA, without hashes.

Each function answers as the function of its name documents, and takes one launch; :func:`next_in_loop` takes two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import by_row, entry, once, ratio_up

WARPS = 4

COMPARED = 32
"""Elements of a row that a program of :func:`largest_per_id` finds, and compares with at a time."""

MARKED = 32
"""Tokens of a pattern that are compared at a time."""

POSITIONS = 256
"""Positions of a history for which a program finds matches."""

SPAN = 1024
"""Tokens of a history that a program with its own history reads at a time."""

SIZES = {"POSITIONS": POSITIONS, "AT_ONCE": 8, "REACH": 2 * POSITIONS, "SPAN": SPAN}
"""``AT_ONCE``: tokens before each position that are compared at a time, of at most ``REACH``; ``SPAN``: tokens before
one position that are compared at a time."""


@triton.jit
def drafts_of(drafts, committed, slot, row, length, DRAFTS: tl.constexpr):
    """Return (memory of a text's drafts by position, position of the first). No row is before the first."""
    behind = length
    if DRAFTS:
        drafts += row + 1 - length
        behind = tl.maximum(tl.load(committed + slot).to(tl.int32), length - 1 - row.to(tl.int32))
    return drafts, behind


@triton.jit
def text_at(tokens, across, drafts, committed, place, mask, FILL: tl.constexpr, DRAFTS: tl.constexpr):
    """Read tokens of a text. ``DRAFTS``: tokens behind the committed ones lie elsewhere."""
    if DRAFTS:
        behind = place >= committed
        token = tl.load(tokens + place * across, mask=mask & (place < committed), other=FILL)
        token = tl.where(behind, tl.load(drafts + place, mask=mask & behind, other=FILL).to(token.dtype), token)
    else:
        token = tl.load(tokens + place * across, mask=mask, other=FILL)
    return token


@triton.jit
def _common(tokens, across, drafts, committed, one, other, known, DRAFTS: tl.constexpr, SPAN: tl.constexpr):
    """Count equal tokens before two positions, ``one < other``; ``known`` of them are known to be equal."""
    going = known < one
    while going:
        back = known + 1 + tl.arange(0, SPAN)
        there = back <= one
        mine = text_at(tokens, across, drafts, committed, one - back, there, 0, DRAFTS)
        theirs = text_at(tokens, across, drafts, committed, other - back, there, 0, DRAFTS)
        equal = tl.min(tl.where(there & (mine == theirs), SPAN, tl.arange(0, SPAN)), 0)
        known += equal
        going = equal == SPAN
    return known


@once
def _matches(
    tokens, slots, own, lengths, sizes, since, windows, drafts, committed, found,
    stride, across, own_step, length_step, size_step, since_step, window_step, beyond, width,
    ASKED: tl.constexpr, SINCE: tl.constexpr, DRAFTS: tl.constexpr, POSITIONS: tl.constexpr, AT_ONCE: tl.constexpr,
    REACH: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Count the tokens before each position that equal the end of the history.

    ``ASKED``: "lengths"; "ngram": test if they are as many as an n-gram of a row's size begins with, which bounds the
    comparison; "ids": the token at each position of such a row, -1 at others, for n-grams in a window of the last
    tokens. ``SINCE``: only tokens from there on count. ``beyond`` is added to lengths. ``DRAFTS``: a
    row's text ends with the inputs of the rows before it.

    All positions of a program are compared together, until none matches. If several match ``REACH`` tokens, they lie in
    one periodic stretch, a period apart: two occurrences of a string at most half its length apart overlap in a period
    of it. The period's reach, before the last of them and before the end, decides the length of each match. One case is
    left: a position before which the period reaches as far as before the end. This position, or a single match, is
    compared further.
    """
    row = tl.program_id(1).to(tl.int64)
    slot, edited = entry(slots, own, own_step, row)
    tokens += slot * stride
    length = tl.where(edited, tl.load(lengths + row * length_step) + beyond, 0).to(tl.int32)
    place = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    drafts, behind = drafts_of(drafts, committed, slot, row, length, DRAFTS)
    first = 0
    if SINCE:
        since_then = tl.load(since + slot * since_step).to(tl.int64)
        if ASKED == "ids":
            since_then = tl.maximum(since_then, length - tl.load(windows + slot * window_step))
        first = tl.minimum(tl.maximum(since_then, 0), length).to(tl.int32)
    enough = length - first
    if ASKED != "lengths":
        enough = tl.minimum(tl.load(sizes + slot * size_step) - 1, length + 1).to(tl.int32)
    matched = tl.zeros((POSITIONS,), tl.int32)
    same = (place < length) & (place >= first)
    done = 0
    while (done < tl.minimum(REACH, enough)) & (tl.max(same.to(tl.int32), 0) > 0):
        back = done + 1 + tl.arange(0, AT_ONCE)
        last = text_at(tokens, across, drafts, behind, length - back, back <= length, 0, DRAFTS)
        before = place[:, None] - back[None, :]
        there = same[:, None] & (before >= 0)
        equal = there & (text_at(tokens, across, drafts, behind, before, there, 0, DRAFTS) == last[None, :])
        more = tl.min(tl.where(equal, AT_ONCE, tl.arange(0, AT_ONCE)[None, :]), 1)
        matched += tl.where(same, more, 0)
        same &= more == AT_ONCE
        done += AT_ONCE
    alone = tl.max(tl.where(same, place, -1), 0)
    if (alone >= 0) & (done < enough):
        known = done
        second = tl.max(tl.where(same & (place < alone), place, -1), 0)
        if second >= 0:
            period = alone - second
            known = done - period
            before_end = _common(tokens, across, drafts, behind, length - period, length, known, DRAFTS, SPAN)
            before_end += period
            before_last = _common(tokens, across, drafts, behind, second, alone, known, DRAFTS, SPAN)
            before_last += period
            before_each = before_last - (alone - place)
            matched = tl.where(same, tl.minimum(before_each, before_end), matched)
            alone = tl.max(tl.where(same & (before_each == before_end), place, -1), 0)
            known = before_end
        if alone >= 0:
            further = _common(tokens, across, drafts, behind, alone, length, known, DRAFTS, SPAN)
            matched = tl.where(place == alone, further, matched)
    inside = place < width
    before = place - first
    found += row * width + place
    completes = (place < length) & (matched >= enough) & (before >= enough)
    if ASKED == "lengths":
        tl.store(found, tl.minimum(matched, tl.maximum(before, 0)).to(tl.int64), mask=inside)
    elif ASKED == "ngram":
        tl.store(found, completes, mask=inside)
    else:
        token = text_at(tokens, across, drafts, behind, place, completes, -1, DRAFTS)
        tl.store(found, token.to(tl.int64), mask=inside)


@once
def _largest(ids, values, found, ids_stride, ids_across, values_stride, values_across, k, BLOCK: tl.constexpr):
    """Store a row's ids, and -1 for an id that also occurs with a larger value, or earlier with the same value."""
    row = tl.program_id(0).to(tl.int64)
    ids += row * ids_stride
    values += row * values_stride
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(ids + place * ids_across, mask=place < k, other=-1).to(tl.int32)
    value = tl.load(values + place * values_across, mask=mine >= 0, other=-1).to(tl.int32)
    mine = tl.where(value >= 0, mine, -1)
    if tl.max(mine, 0) >= 0:
        beaten = tl.zeros((BLOCK,), tl.int32)
        for start in range(0, k, BLOCK):
            other = start + tl.arange(0, BLOCK)
            theirs = tl.load(ids + other * ids_across, mask=other < k, other=-1).to(tl.int32)
            if tl.max(theirs, 0) >= 0:
                against = tl.load(values + other * values_across, mask=theirs >= 0, other=-1).to(tl.int32)
                before = (against[None, :] == value[:, None]) & (other[None, :] < place[:, None])
                better = (theirs[None, :] == mine[:, None]) & ((against[None, :] > value[:, None]) | before)
                beaten |= tl.max(better.to(tl.int32), 1)
        mine = tl.where(beaten > 0, -1, mine)
    tl.store(found + row * k + place, mine.to(tl.int64), mask=place < k)


@once
def _end(tokens, pattern, found, stride, across, pattern_stride, pattern_across, width, k, BLOCK: tl.constexpr):
    """Find the position behind the last occurrence of a row's pattern, searching from the end."""
    row = tl.program_id(0).to(tl.int64)
    tokens += row * stride
    pattern += row * pattern_stride
    size = 0
    for offset in range(k):
        size += (tl.load(pattern + offset * pattern_across) >= 0).to(tl.int32)
    last = -1
    start = (width - 1) // BLOCK * BLOCK
    while (start >= 0) & (last < 0) & (size > 0):
        place = start + tl.arange(0, BLOCK)
        there = place + size <= width
        offset = 0
        while (offset < size) & (tl.max(there.to(tl.int32), 0) > 0):
            token = tl.load(tokens + (place + offset) * across, mask=there, other=-1)
            there &= token == tl.load(pattern + offset * pattern_across)
            offset += 1
        last = tl.max(tl.where(there, place + size, -1), 0)
        start -= BLOCK
    tl.store(found + row, last)


@once
def _begun(
    tokens, lengths, pattern, since, found,
    stride, across, length_step, pattern_stride, pattern_across, since_step, k,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the tokens of a row's incomplete pattern at the end of its history, longest first."""
    row = tl.program_id(0).to(tl.int64)
    tokens += row * stride
    pattern += row * pattern_stride
    length = tl.load(lengths + row * length_step)
    size = 0
    for offset in range(k):
        size += (tl.load(pattern + offset * pattern_across) >= 0).to(tl.int32)
    most = tl.minimum(length, length - tl.load(since + row * since_step))
    taken = tl.minimum(size - 1, tl.maximum(most, 0)).to(tl.int32)
    fits = 0
    while (taken > 0) & (fits == 0):
        fits = 1
        for start in range(0, taken, BLOCK):
            item = start + tl.arange(0, BLOCK)
            inside = item < taken
            wanted = tl.load(pattern + item * pattern_across, mask=inside, other=0)
            token = tl.load(tokens + (length - taken + item) * across, mask=inside, other=0)
            fits = tl.minimum(fits, tl.min((token == wanted).to(tl.int32), 0))
        taken -= 1 - fits
    tl.store(found + row, tl.maximum(taken, 0).to(tl.int64))


@once
def _next_in_loop(
    tokens, lengths, times, least, matched, found,
    stride, across, length_step, times_step, least_step, width,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the token that continues the loop at the end of a row's history."""
    row = tl.program_id(0).to(tl.int64)
    tokens += row * stride
    length = tl.load(lengths + row * length_step)
    repeated = tl.load(times + row * times_step) - 1
    fewest = tl.load(least + row * least_step)
    last = -1
    start = (width - 1) // BLOCK * BLOCK
    while (start >= 0) & (last < 0):
        place = start + tl.arange(0, BLOCK)
        span = length - place
        there = (place < width) & (span > 0)
        before = tl.load(matched + row * width + place, mask=there, other=0)
        loops = there & (before >= repeated * span) & (before + span >= fewest)
        known = tl.load(tokens + place * across, mask=loops, other=-1) >= 0
        last = tl.max(tl.where(loops & known, place, -1), 0)
        start -= BLOCK
    tl.store(found + row, tl.load(tokens + last * across, mask=last >= 0, other=-1))


def _answer(
    kernel: Any, shape: Sequence[int], dtype: torch.dtype, given: Sequence[Any], grid: tuple[int, ...], **options: Any
) -> torch.Tensor:
    """Return what a kernel stores behind its tensors and before its sizes; no rows need no launch."""
    tensors = [item for item in given if isinstance(item, torch.Tensor)]
    found = torch.empty(shape, dtype=dtype, device=tensors[0].device)
    if found.numel():
        launch(kernel, grid, (*tensors, found, *given[len(tensors) :]), **options)
    return found


def match_lengths(tokens: torch.Tensor, lengths: torch.Tensor, since: torch.Tensor | None = None) -> torch.Tensor:
    """Exact, unlike hashes.

    A program is done with most of its 256 positions after 8 tokens. In the worst case, a history that repeats one span,
    it compares each position with 512 tokens, and then three times one position with all tokens:
    ``512 * W + 3 * W * W / 256`` tokens of a row, a fourth of ``W * W / 2`` at W = 4096 and an eighteenth at 32768. For
    256 such rows these are 0.6 and 7.5 billion.
    """
    return _matched(torch.int64, tokens, lengths, lengths, since)


def completes_ngram(
    tokens: torch.Tensor, lengths: torch.Tensor, size: torch.Tensor, since: torch.Tensor
) -> torch.Tensor:
    return _matched(torch.bool, tokens, lengths, size, since)


def _matched(
    dtype: torch.dtype, tokens: torch.Tensor, lengths: torch.Tensor, size: torch.Tensor, since: torch.Tensor | None
) -> torch.Tensor:
    n, width = tokens.shape
    first = lengths if since is None else since
    slots, own, own_step, _ = by_row(tokens)
    steps = (*tokens.stride(), own_step, lengths.stride(0), size.stride(0), first.stride(0), 0, 0, width)
    given = (tokens, slots, own, lengths, size, first, first, lengths, lengths, *steps)
    # Programs of a row come one after the other, because they read the same tokens.
    grid, asked = (ratio_up(width, POSITIONS), n), {torch.int64: "lengths", torch.bool: "ngram"}[dtype]
    options = {"ASKED": asked, "SINCE": since is not None, "DRAFTS": False, **SIZES, "num_warps": WARPS}
    return _answer(_matches, tokens.shape, dtype, given, grid, **options)


def largest_per_id(ids: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and values are below 2**31, and each id keeps its position."""
    n, k = ids.shape
    given = (ids, values, *ids.stride(), *values.stride(), k)
    grid = n, ratio_up(k, COMPARED)
    return _answer(_largest, ids.shape, torch.int64, given, grid, BLOCK=COMPARED, num_warps=WARPS), values


def end_of_last(tokens: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """A program searches a row from its end, 1024 positions at a time. It compares further tokens only where the first
    tokens match."""
    n, width = tokens.shape
    given = (tokens, pattern, *tokens.stride(), *pattern.stride(), width, pattern.shape[1])
    return _answer(_end, (n,), torch.int64, given, (n,), BLOCK=SPAN, num_warps=WARPS)


def begun(tokens: torch.Tensor, lengths: torch.Tensor, pattern: torch.Tensor, since: torch.Tensor) -> torch.Tensor:
    n, k = pattern.shape
    steps = (*tokens.stride(), lengths.stride(0), *pattern.stride(), since.stride(0), k)
    given = (tokens, lengths, pattern, since, *steps)
    return _answer(_begun, (n,), torch.int64, given, (n,), BLOCK=MARKED, num_warps=1)


def next_in_loop(
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    times: torch.Tensor,
    least: torch.Tensor,
    since: torch.Tensor | None = None,
) -> torch.Tensor:
    n, width = tokens.shape
    matched = match_lengths(tokens, lengths, since)
    steps = (*tokens.stride(), lengths.stride(0), times.stride(0), least.stride(0), width)
    given = (tokens, lengths, times, least, matched, *steps)
    return _answer(_next_in_loop, (n,), torch.int64, given, (n,), BLOCK=SPAN, num_warps=WARPS)


def attempt(device: torch.device) -> None:
    """Run each kernel once, which compiles it."""
    tokens, lengths = torch.zeros(2, 3, dtype=torch.int64, device=device), torch.arange(2, device=device)
    match_lengths(tokens, lengths)
    largest_per_id(tokens, tokens)
    completes_ngram(tokens, lengths, lengths, lengths)
    end_of_last(tokens, tokens)
    begun(tokens, lengths, tokens, lengths)
    next_in_loop(tokens, lengths, lengths, lengths, lengths)
