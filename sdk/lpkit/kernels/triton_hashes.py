"""The hashes of :mod:`lpkit.kernels.hashes` inside of Triton kernels, with the same bits."""

from __future__ import annotations

import triton
import triton.language as tl

from lpkit.kernels import hashes
from lpkit.kernels.recording import HASHES
from lpkit.kernels.triton_sequences import text_at

AT_ONCE = 16
"""Tokens of a context that are hashed at a time."""

GOLDEN = tl.constexpr(hashes.GOLDEN % 2**64)
FIRST, SECOND = (tl.constexpr(factor % 2**64) for factor in hashes.FACTORS_64)
STEP = tl.constexpr(2.0**-24)
MODULUS = tl.constexpr(HASHES)


@triton.jit
def mixed(state, key):
    """Mix one more key into the state: uint64 of a uint64 state and an int64 key."""
    state = (state ^ key.to(tl.uint64, bitcast=True)) + GOLDEN
    state = (state ^ (state >> 30)) * FIRST
    state = (state ^ (state >> 27)) * SECOND
    return state ^ (state >> 31)


@triton.jit
def drawn(state):
    """Return numbers in [0, 1)."""
    return (state >> 40).to(tl.int32).to(tl.float32) * STEP


@triton.jit
def seed_of(text, length, count, key, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the hash of a key and a text's last tokens, a block of one int32."""
    last = length - 1
    total = tl.zeros((BLOCK,), tl.uint64)
    for start in range(0, count.to(tl.int32), BLOCK):
        back = start + tl.arange(0, BLOCK).to(tl.int64)
        mine = back < count
        token = text_at(text, last - back, mine & (back <= last), -1, DRAFTS).to(tl.int64)
        hashed = mixed(mixed(tl.zeros((BLOCK,), tl.uint64), back), token)
        total += tl.where(mine, hashed, tl.zeros((BLOCK,), tl.uint64))
    whole = tl.sum(total.to(tl.int64, bitcast=True), 0)
    zero = tl.zeros((1,), tl.int64)  # a block, since a number has no bits to be taken for others
    state = mixed(mixed(zero.to(tl.uint64, bitcast=True), key + zero), whole + zero)
    return (state >> 32).to(tl.uint32).to(tl.int32, bitcast=True)


@triton.jit
def _output_at(text, place, mask, prompt, DRAFTS: tl.constexpr):
    """Read tokens of an output; what is before it, and an unknown draft, is 0."""
    return tl.maximum(text_at(text, place, mask & (place >= prompt), 0, DRAFTS), 0).to(tl.int64)


@triton.jit
def fresh(text, prompt, total, since, size, weights, k, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the hash of an output's last ``size`` tokens; -1 if the output has had them since a position."""
    back = tl.arange(0, BLOCK)
    last = _output_at(text, total - 1 - back, back < k, prompt, DRAFTS)
    hashed = tl.sum(last * tl.load(weights + back, mask=back < k, other=0), 0) % MODULUS
    while (since < total) & (hashed >= 0):
        place = since + back
        same = place < total
        done = 1
        while (done <= size) & (tl.max(same.to(tl.int32), 0) > 0):
            mine = _output_at(text, place - done, same, prompt, DRAFTS)
            same &= mine == _output_at(text, total - done, total > 0, prompt, DRAFTS)
            done += 1
        hashed = tl.where(tl.max(same.to(tl.int32), 0) > 0, -1, hashed)
        since += BLOCK
    return hashed
