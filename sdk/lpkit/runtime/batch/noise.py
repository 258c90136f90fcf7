"""Counter-based random numbers: element (row, token) depends only on its row's key and its token id.

All steps are integer arithmetic on the host, except one exact scaling. So values do not depend on the batch, the device
or the vectorisation of a kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

UInts = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_SHIFTS = (np.uint64(33), np.uint64(29), np.uint64(32))
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(1))
_CHUNK_ELEMENTS = 1 << 15


def _mix(x: UInts) -> UInts:
    """Scramble ``x`` in place (two multiply and xor-shift rounds)."""
    scratch = np.empty_like(x)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=True):
        np.right_shift(x, shift, out=scratch)
        np.bitwise_xor(x, scratch, out=x)
        if factor != 1:
            np.multiply(x, factor, out=x)
    return x


@lru_cache(maxsize=16)
def _token_hashes(vocab_size: int) -> UInts:
    return _mix(np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(_GOLDEN))


@lru_cache(maxsize=1 << 16)
def _key_hash(seed: int, kind: str, key: int | str) -> int:
    text = f"{seed}/{kind}/{type(key).__name__}/{key}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def row_hashes(seed: int, kind: str, rows: Sequence[tuple[int | str, int]]) -> UInts:
    """Compute one 64-bit number for each (key, position); ``kind`` separates independent streams."""
    keyed = [(_key_hash(seed, kind, key) + position * _GOLDEN) & _MASK for key, position in rows]
    return _mix(np.array(keyed, dtype=np.uint64))


def element_hashes(rows: UInts, vocab_size: int) -> Iterator[tuple[slice, UInts]]:
    """Yield ``[n, vocab]`` numbers from ``[n]`` row hashes, in slices of rows that fit the cache."""
    step = max(1, _CHUNK_ELEMENTS // vocab_size)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        yield part, _mix(rows[part, None] + _token_hashes(vocab_size))


def exponential(rows: UInts, vocab_size: int) -> Floats:
    """Compute ``[n, vocab]`` exponential variates, strictly positive."""
    result: Floats = np.empty((len(rows), vocab_size), dtype=np.float32)
    for part, bits in element_hashes(rows, vocab_size):
        uniform = (bits >> np.uint64(40)).astype(np.float32)
        uniform += np.float32(0.5)
        uniform *= np.float32(2.0**-24)
        np.log(uniform, out=result[part])
    # The largest uniform rounds to 1, whose logarithm is 0. A divisor of 0 would always win.
    np.negative(result, out=result)
    np.maximum(result, np.float32(2.0**-26), out=result)
    return result
