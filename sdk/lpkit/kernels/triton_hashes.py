"""The hashes of :mod:`lpkit.kernels.hashes` as Triton kernels for CUDA, one launch each, with the same bits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels import hashes
from lpkit.kernels.launching import launch
from lpkit.kernels.triton_rows import once, ratio_up

BLOCK = 256
"""Numbers that a program hashes."""

AT_ONCE = 16
"""Tokens of a context that are hashed at a time."""

WARPS = 4

MOST_KEYS = 3
"""Keys that one launch hashes."""

GOLDEN = tl.constexpr(hashes.GOLDEN % 2**64)
FIRST, SECOND = (tl.constexpr(factor % 2**64) for factor in hashes.FACTORS_64)
STEP = tl.constexpr(2.0**-24)


@triton.jit
def _mixed(state, key):
    """Mix one more key into the state: uint64 of a uint64 state and an int64 key."""
    state = (state ^ key.to(tl.uint64, bitcast=True)) + GOLDEN
    state = (state ^ (state >> 30)) * FIRST
    state = (state ^ (state >> 27)) * SECOND
    return state ^ (state >> 31)


@once
def _mix(
    first, second, third, found,
    first_stride, first_across, second_stride, second_across, third_stride, third_across, keys, width,
    DRAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Hash one to three keys to 64 bits. ``DRAW``: to a number in [0, 1)."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < width
    state = tl.zeros((BLOCK,), tl.uint64)
    state = _mixed(state, tl.load(first + row * first_stride + place * first_across, mask=inside, other=0))
    if keys > 1:
        state = _mixed(state, tl.load(second + row * second_stride + place * second_across, mask=inside, other=0))
    if keys > 2:
        state = _mixed(state, tl.load(third + row * third_stride + place * third_across, mask=inside, other=0))
    result = (state >> 40).to(tl.int32).to(tl.float32) * STEP if DRAW else state.to(tl.int64, bitcast=True)
    tl.store(found + row * width + place, result, mask=inside)


@once
def _context(
    tokens, lengths, counts,
    keys, seeds, stride, across, length_step, count_step, key_step,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the seed of a row: a hash of its key and its last tokens."""
    row = tl.program_id(0).to(tl.int64)
    last = tl.load(lengths + row * length_step) - 1
    count = tl.load(counts + row * count_step)
    total = tl.zeros((BLOCK,), tl.uint64)
    for start in range(0, count.to(tl.int32), BLOCK):
        back = start + tl.arange(0, BLOCK).to(tl.int64)
        mine = back < count
        token = tl.load(tokens + row * stride + (last - back) * across, mask=mine & (back <= last), other=-1)
        hashed = _mixed(_mixed(tl.zeros((BLOCK,), tl.uint64), back), token)
        total += tl.where(mine, hashed, tl.zeros((BLOCK,), tl.uint64))
    whole = tl.sum(total.to(tl.int64, bitcast=True), 0)
    zero = tl.zeros((1,), tl.int64)  # a block, since a number has no bits to be taken for others
    key = tl.load(keys + row * key_step) + zero
    state = _mixed(_mixed(zero.to(tl.uint64, bitcast=True), key), whole + zero)
    tl.store(seeds + row + tl.arange(0, 1), (state >> 32).to(tl.uint32).to(tl.int32, bitcast=True))


def mix(*keys: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.rng.mix`."""
    return _of_keys(keys, torch.int64)


def uniform(*keys: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.rng.uniform`."""
    return _of_keys(keys, torch.float32)


def context_seeds(tokens: torch.Tensor, lengths: torch.Tensor, count: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.rng.context_seeds`."""
    n = tokens.shape[0]
    seeds = torch.empty((n, 1), dtype=torch.int32, device=tokens.device)
    if n:
        per_row = [item.expand(n) for item in (lengths, count, key)]
        steps = (*tokens.stride(), *(item.stride(0) for item in per_row))
        launch(_context, (n,), (tokens, *per_row, seeds, *steps), BLOCK=AT_ONCE, num_warps=1)
    return seeds


def attempt(device: torch.device) -> None:
    """Run each kernel once, which compiles it."""
    keys = torch.zeros(2, 3, dtype=torch.int64, device=device)
    mix(keys)
    uniform(keys)
    context_seeds(keys, *keys.unbind(1))


def _of_keys(keys: tuple[torch.Tensor, ...], dtype: torch.dtype) -> torch.Tensor:
    while len(keys) > MOST_KEYS:  # a key is combined with the result of the keys before it
        keys = (mix(*keys[:MOST_KEYS]) ^ keys[MOST_KEYS], *keys[MOST_KEYS + 1 :])
    spread = torch.broadcast_tensors(*keys)
    found = torch.empty(spread[0].shape, dtype=dtype, device=keys[0].device)
    if found.numel():
        # As rows of numbers: views, unless a shape of three dimensions and more cannot be flattened.
        flat = [item.reshape(-1, item.shape[-1] if item.ndim else 1) for item in spread]
        rows, width = flat[0].shape
        three = (flat * MOST_KEYS)[:MOST_KEYS]
        strides = [step for item in three for step in item.stride()]
        given = (*three, found, *strides, len(keys), width)
        launch(_mix, (rows, ratio_up(width, BLOCK)), given, DRAW=dtype == torch.float32, BLOCK=BLOCK, num_warps=WARPS)
    return found
