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

COMPARED = 64
"""Elements of a row that a program of :func:`counts` counts, and compares with at a time."""

COMPARED_TWICE = COMPARED // 2
"""The same for :func:`largest_per_id`, which compares ids and values."""

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
def _common(tokens, across, one, other, known, SPAN: tl.constexpr):
    """Count equal tokens before two positions, ``one < other``; ``known`` of them are known to be equal."""
    going = known < one
    while going:
        back = known + 1 + tl.arange(0, SPAN)
        there = back <= one
        mine = tl.load(tokens + (one - back) * across, mask=there, other=0)
        theirs = tl.load(tokens + (other - back) * across, mask=there, other=0)
        equal = tl.min(tl.where(there & (mine == theirs), SPAN, tl.arange(0, SPAN)), 0)
        known += equal
        going = equal == SPAN
    return known


@once
def _matches(
    tokens, slots, own, lengths, sizes, since, windows, found,
    stride, across, own_step, length_step, size_step, since_step, window_step, beyond, width,
    ASKED: tl.constexpr, SINCE: tl.constexpr, POSITIONS: tl.constexpr, AT_ONCE: tl.constexpr, REACH: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    """Count the tokens before each position that equal the end of the history.

    ``ASKED``: "lengths"; "ngram": test if they are as many as an n-gram of a row's size begins with, which bounds the
    comparison; "ids": the token at each position of such a row, -1 at others, for n-grams in a window of the last
    tokens. ``SINCE``: only tokens from there on count. ``beyond`` is added to lengths.

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
        last = tl.load(tokens + (length - back) * across, mask=back <= length, other=0)
        before = place[:, None] - back[None, :]
        there = same[:, None] & (before >= 0)
        equal = there & (tl.load(tokens + before * across, mask=there, other=0) == last[None, :])
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
            before_end = period + _common(tokens, across, length - period, length, done - period, SPAN)
            before_last = period + _common(tokens, across, second, alone, done - period, SPAN)
            before_each = before_last - (alone - place)
            matched = tl.where(same, tl.minimum(before_each, before_end), matched)
            alone = tl.max(tl.where(same & (before_each == before_end), place, -1), 0)
            known = before_end
        if alone >= 0:
            matched = tl.where(place == alone, _common(tokens, across, alone, length, known, SPAN), matched)
    inside = place < width
    before = place - first
    found += row * width + place
    completes = (place < length) & (matched >= enough) & (before >= enough)
    if ASKED == "lengths":
        tl.store(found, tl.minimum(matched, tl.maximum(before, 0)).to(tl.int64), mask=inside)
    elif ASKED == "ngram":
        tl.store(found, completes, mask=inside)
    else:
        tl.store(found, tl.load(tokens + place * across, mask=completes, other=-1).to(tl.int64), mask=inside)


@once
def _counts(tokens, among, found, stride, across, among_stride, among_across, width, BLOCK: tl.constexpr):
    """Count for each token of a row the chosen tokens equal to it, by comparing each with each."""
    row = tl.program_id(0).to(tl.int64)
    tokens += row * stride
    among += row * among_stride
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(tokens + place * across, mask=place < width, other=-1).to(tl.int32)
    equal = tl.zeros((BLOCK, BLOCK), tl.int32)
    for start in range(0, width, BLOCK):
        other = start + tl.arange(0, BLOCK)
        chosen = tl.load(among + other * among_across, mask=other < width, other=0) != 0
        if tl.max(chosen.to(tl.int32), 0) > 0:  # a stretch of the prompt is not even read
            theirs = tl.load(tokens + other * across, mask=chosen, other=0).to(tl.int32)
            equal += ((mine[:, None] == theirs[None, :]) & chosen[None, :]).to(tl.int32)
    tl.store(found + row * width + place, tl.sum(equal, 1).to(tl.int64), mask=place < width)


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
    given = (tokens, slots, own, lengths, size, first, first, *steps)
    # Programs of a row come one after the other, because they read the same tokens.
    grid, asked = (ratio_up(width, POSITIONS), n), {torch.int64: "lengths", torch.bool: "ngram"}[dtype]
    options = {"ASKED": asked, "SINCE": since is not None, **SIZES, "num_warps": WARPS}
    return _answer(_matches, tokens.shape, dtype, given, grid, **options)


def counts(tokens: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    n, width = tokens.shape
    among = among.expand_as(tokens)
    given = (tokens, among, *tokens.stride(), *among.stride(), width)
    grid = n, ratio_up(width, COMPARED)
    return _answer(_counts, tokens.shape, torch.int64, given, grid, BLOCK=COMPARED, num_warps=WARPS)


def largest_per_id(ids: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and values are below 2**31, and each id keeps its position."""
    n, k = ids.shape
    given = (ids, values, *ids.stride(), *values.stride(), k)
    grid = n, ratio_up(k, COMPARED_TWICE)
    return _answer(_largest, ids.shape, torch.int64, given, grid, BLOCK=COMPARED_TWICE, num_warps=WARPS), values


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
    counts(tokens, tokens > 0)
    match_lengths(tokens, lengths)
    largest_per_id(tokens, tokens)
    completes_ngram(tokens, lengths, lengths, lengths)
    end_of_last(tokens, tokens)
    begun(tokens, lengths, tokens, lengths)
    next_in_loop(tokens, lengths, lengths, lengths, lengths)
