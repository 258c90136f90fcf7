"""Functions of :mod:`lpkit.sequences` as Triton kernels for CUDA, each in one launch and without hashes.

Sizes and strides are run-time arguments, so that no batch has to wait for a compiler.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch

WARPS = 4

COMPARED = 64
"""Elements of a row that a program of :func:`counts` counts, and compares with at a time."""

COMPARED_TWICE = COMPARED // 2
"""The same for :func:`largest_per_id`, which compares ids and values."""

POSITIONS = 256
"""Positions of a history for which a program finds matches."""

SPAN = 1024
"""Tokens of a history that a program with its own history reads at a time."""

SIZES = {"POSITIONS": POSITIONS, "AT_ONCE": 8, "REACH": 2 * POSITIONS, "SPAN": SPAN}
"""``AT_ONCE``: tokens before each position that are compared at a time, of at most ``REACH``; ``SPAN``: tokens before
one position that are compared at a time."""


@triton.jit  # type: ignore[untyped-decorator]
def _common(tokens, across, one, other, known, SPAN: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
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


@triton.jit(
    do_not_specialize=["tokens", "lengths", "counts", "since", "found"]
    + ["stride", "across", "length_step", "count_step", "since_step", "width"]
)  # type: ignore[untyped-decorator]
def _matches(  # type: ignore[no-untyped-def]
    tokens,
    lengths,
    counts,
    since,
    found,
    stride,
    across,
    length_step,
    count_step,
    since_step,
    width,
    ASKED: tl.constexpr,  # noqa: N803
    SINCE: tl.constexpr,  # noqa: N803
    POSITIONS: tl.constexpr,  # noqa: N803
    AT_ONCE: tl.constexpr,  # noqa: N803
    REACH: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
):
    """Count the tokens before each position that equal the end of the history. ``ASKED``: "lengths"; "end": test if
    they are as many as a row's count, which bounds the comparison; "ngram": test if they are one less than its count.
    ``SINCE``: only tokens from there on count.

    All positions of a program are compared together, until none matches. If several match ``REACH`` tokens, they lie in
    one periodic stretch, a period apart: two occurrences of a string at most half its length apart overlap in a period
    of it. The period's reach, before the last of them and before the end, decides the length of each match. One case is
    left: a position before which the period reaches as far as before the end. This position, or a single match, is
    compared further.
    """
    row = tl.program_id(1).to(tl.int64)
    tokens += row * stride
    length = tl.load(lengths + row * length_step).to(tl.int32)
    place = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    first = 0
    if SINCE:
        first = tl.minimum(tl.maximum(tl.load(since + row * since_step), 0), length).to(tl.int32)
    enough = length - first
    if ASKED != "lengths":
        count = tl.load(counts + row * count_step) - (ASKED == "ngram")
        enough = tl.minimum(count, length + 1).to(tl.int32)
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
    if ASKED == "lengths":
        matched = tl.minimum(matched, tl.maximum(before, 0))
        tl.store(found + row * width + place, matched.to(tl.int64), mask=inside)
    else:
        tl.store(found + row * width + place, (place < length) & (matched >= enough) & (before >= enough), mask=inside)


@triton.jit(do_not_specialize=["tokens", "among", "found", "stride", "across", "among_stride", "among_across", "width"])  # type: ignore[untyped-decorator]
def _counts(  # type: ignore[no-untyped-def]
    tokens,
    among,
    found,
    stride,
    across,
    among_stride,
    among_across,
    width,
    BLOCK: tl.constexpr,  # noqa: N803
):
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


@triton.jit(
    do_not_specialize=["ids", "values", "found", "ids_stride", "ids_across", "values_stride", "values_across", "k"]
)  # type: ignore[untyped-decorator]
def _largest(  # type: ignore[no-untyped-def]
    ids,
    values,
    found,
    ids_stride,
    ids_across,
    values_stride,
    values_across,
    k,
    BLOCK: tl.constexpr,  # noqa: N803
):
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


def match_lengths(tokens: torch.Tensor, lengths: torch.Tensor, since: torch.Tensor | None = None) -> torch.Tensor:
    """See :func:`lpkit.sequences.match_lengths`; exact, unlike hashes.

    A program is done with most of its 256 positions after 8 tokens. In the worst case, a history that repeats one span,
    it compares each position with 512 tokens, and then three times one position with all tokens:
    ``512 * W + 3 * W * W / 256`` tokens of a row, a fourth of ``W * W / 2`` at W = 4096 and an eighteenth at 32768. For
    256 such rows these are 0.6 and 7.5 billion.
    """
    return _matched("lengths", tokens, lengths, lengths, since)


def end_stood_before(tokens: torch.Tensor, lengths: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.sequences.end_stood_before`."""
    return _matched("end", tokens, lengths, count)


def completes_ngram(
    tokens: torch.Tensor, lengths: torch.Tensor, size: torch.Tensor, since: torch.Tensor
) -> torch.Tensor:
    """See :func:`lpkit.sequences.completes_ngram`."""
    return _matched("ngram", tokens, lengths, size, since)


def _matched(
    asked: str,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    count: torch.Tensor,
    since: torch.Tensor | None = None,
) -> torch.Tensor:
    kind = torch.int64 if asked == "lengths" else torch.bool
    found = torch.empty(tokens.shape, dtype=kind, device=tokens.device)
    if found.numel():
        n, width = tokens.shape
        given = (tokens, lengths, count, lengths if since is None else since)
        steps = (*tokens.stride(), *(item.stride(0) for item in given[1:]), width)
        # Programs of a row come one after the other, because they read the same tokens.
        grid = (triton.cdiv(width, POSITIONS), n)
        asking = {"ASKED": asked, "SINCE": since is not None}
        launch(_matches, grid, (*given, found, *steps), **asking, **SIZES, num_warps=WARPS)
    return found


def counts(tokens: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.sequences.counts`; ids below 2**31."""
    found = torch.empty(tokens.shape, dtype=torch.int64, device=tokens.device)
    if found.numel():
        grid = (tokens.shape[0], triton.cdiv(tokens.shape[1], COMPARED))
        strides = (*tokens.stride(), *among.stride())
        launch(_counts, grid, (tokens, among, found, *strides, tokens.shape[1]), BLOCK=COMPARED, num_warps=WARPS)
    return found


def largest_per_id(ids: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`lpkit.sequences.largest_per_id`; ids and values below 2**31, and each id keeps its position."""
    found = torch.empty(ids.shape, dtype=torch.int64, device=ids.device)
    if found.numel():
        grid = (ids.shape[0], triton.cdiv(ids.shape[1], COMPARED_TWICE))
        sizes = (*ids.stride(), *values.stride(), ids.shape[1])
        launch(_largest, grid, (ids, values, found, *sizes), BLOCK=COMPARED_TWICE, num_warps=WARPS)
    return found, values


def attempt(device: torch.device) -> None:
    """Run each kernel once, which compiles it."""
    tokens, lengths = torch.zeros(2, 3, dtype=torch.int64, device=device), torch.arange(2, device=device)
    counts(tokens, tokens > 0)
    match_lengths(tokens, lengths)
    match_lengths(tokens, lengths, lengths)
    largest_per_id(tokens, tokens)
    end_stood_before(tokens, lengths, lengths.unsqueeze(1))
    completes_ngram(tokens, lengths, lengths, lengths)
