"""Functions of :mod:`lpkit.sequences` for which one program reads a row from its end, as Triton kernels for CUDA.

Sizes and strides are run-time arguments, so that no batch has to wait for a compiler.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.triton_sequences import match_lengths

WARPS = 4

SPAN = 1024
"""Tokens of a history that a program reads at a time."""

MARKED = 32
"""Tokens of a pattern that are compared at a time."""


@triton.jit(
    do_not_specialize=["tokens", "pattern", "found", "stride", "across", "pattern_stride", "pattern_across"]
    + ["width", "k"]
)  # type: ignore[untyped-decorator]
def _end(  # type: ignore[no-untyped-def]
    tokens,
    pattern,
    found,
    stride,
    across,
    pattern_stride,
    pattern_across,
    width,
    k,
    BLOCK: tl.constexpr,  # noqa: N803
):
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


@triton.jit(
    do_not_specialize=["tokens", "lengths", "pattern", "since", "found", "stride", "across", "length_step"]
    + ["pattern_stride", "pattern_across", "since_step", "k"]
)  # type: ignore[untyped-decorator]
def _begun(  # type: ignore[no-untyped-def]
    tokens,
    lengths,
    pattern,
    since,
    found,
    stride,
    across,
    length_step,
    pattern_stride,
    pattern_across,
    since_step,
    k,
    BLOCK: tl.constexpr,  # noqa: N803
):
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


@triton.jit(
    do_not_specialize=["tokens", "lengths", "times", "least", "matched", "found", "stride", "across"]
    + ["length_step", "times_step", "least_step", "width"]
)  # type: ignore[untyped-decorator]
def _next_in_loop(  # type: ignore[no-untyped-def]
    tokens,
    lengths,
    times,
    least,
    matched,
    found,
    stride,
    across,
    length_step,
    times_step,
    least_step,
    width,
    BLOCK: tl.constexpr,  # noqa: N803
):
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


def end_of_last(tokens: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.sequences.end_of_last`. A program searches a row from its end, 1024 positions at a time. It
    compares further tokens only where the first tokens match."""
    found = torch.empty(tokens.shape[0], dtype=torch.int64, device=tokens.device)
    if found.numel():
        sizes = (*tokens.stride(), *pattern.stride(), tokens.shape[1], pattern.shape[1])
        launch(_end, (tokens.shape[0],), (tokens, pattern, found, *sizes), BLOCK=SPAN, num_warps=WARPS)
    return found


def begun(tokens: torch.Tensor, lengths: torch.Tensor, pattern: torch.Tensor, since: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.sequences.begun`."""
    found = torch.empty(tokens.shape[0], dtype=torch.int64, device=tokens.device)
    if found.numel():
        steps = (*tokens.stride(), lengths.stride(0), *pattern.stride(), since.stride(0))
        args = (tokens, lengths, pattern, since, found, *steps, pattern.shape[1])
        launch(_begun, (tokens.shape[0],), args, BLOCK=MARKED, num_warps=1)
    return found


def next_in_loop(
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    times: torch.Tensor,
    least: torch.Tensor,
    since: torch.Tensor | None = None,
) -> torch.Tensor:
    """See :func:`lpkit.sequences.next_in_loop`."""
    found = torch.empty(tokens.shape[0], dtype=torch.int64, device=tokens.device)
    if found.numel():
        matched = match_lengths(tokens, lengths, since)
        steps = (*tokens.stride(), lengths.stride(0), times.stride(0), least.stride(0), tokens.shape[1])
        args = (tokens, lengths, times, least, matched, found, *steps)
        launch(_next_in_loop, (tokens.shape[0],), args, BLOCK=SPAN, num_warps=WARPS)
    return found


def attempt(device: torch.device) -> None:
    """Run each kernel once, which compiles it."""
    tokens, lengths = torch.zeros(2, 3, dtype=torch.int64, device=device), torch.arange(2, device=device)
    end_of_last(tokens, tokens)
    begun(tokens, lengths, tokens, lengths)
    next_in_loop(tokens, lengths, lengths, lengths, lengths)
