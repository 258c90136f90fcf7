"""Integer hashes; :mod:`lpkit.rng` publishes them."""

from __future__ import annotations

import torch

from lpkit.kernels.recording import StandIn

GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""Increment of SplitMix64."""

FACTORS_64 = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
"""The multipliers of :func:`mix`."""

FACTORS_32 = (0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32)
"""The multipliers of :func:`mix32_`."""


def mix(*keys: torch.Tensor) -> torch.Tensor:
    """Hash integers to 64 bits.

    Each key goes through the finalizer of SplitMix64 (Steele, Lea and Flood 2014).

    Args:
        keys: at least one int64 tensor, of any one shape or shapes that broadcast, on one device. Their order matters.

    Returns:
        int64, of the shape that the keys broadcast to.
    """
    state = torch.zeros((), dtype=torch.int64, device=keys[0].device)
    for key in keys:
        state = (state ^ key) + GOLDEN
        for shift, factor in zip((30, 27), FACTORS_64, strict=True):
            state = (state ^ _shifted(state, shift, 64)) * factor
        state = state ^ _shifted(state, 31, 64)
    return state


def uniform(*keys: torch.Tensor) -> torch.Tensor:
    """Compute numbers that look drawn from [0, 1), and depend only on their keys.

    Args:
        keys: at least one int64 tensor, as for :func:`mix`: ``uniform(seed, position)``.

    Returns:
        float32 in [0, 1) with 24 random bits, of the shape that the keys broadcast to.
    """
    if isinstance(keys[0], StandIn):
        return keys[0].kernels.uniform(*keys)
    return _shifted(mix(*keys), 40, 64).to(torch.float32) * 2.0**-24


def context_seeds(
    tokens: torch.Tensor, lengths: torch.Tensor, count: torch.Tensor, key: torch.Tensor, longest: int
) -> torch.Tensor:
    """Hash a key and the last tokens of each history, to seed a watermark's selection.

    With n tokens the seed is the upper half of ``mix(key, mix(0, last) + mix(1, the one before) + ... up to n - 1)``.
    Tokens before the start of a history are -1.

    Args:
        tokens: int64 ``[n, W]``, histories, W at least 1.
        lengths: int64 ``[n]``, length of each history.
        count: int64 ``[n]``, number of last tokens to hash, 0 to ``longest``.
        key: int64 ``[n]``, or a single key for all rows.
        longest: upper bound of ``count``.

    Returns:
        int32 ``[n, 1]``, seeds for :func:`lpkit.kernels.add_where_hashed_`.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.context_seeds(tokens, lengths, count, key)
    back = torch.arange(longest, device=tokens.device)
    position = lengths.unsqueeze(1) - 1 - back
    last = tokens.gather(1, position.clamp(min=0)).masked_fill_(position < 0, -1)
    hashed = mix(back, last).masked_fill_(back >= count.unsqueeze(1), 0).sum(1)
    return (mix(key, hashed) >> 32).to(torch.int32).unsqueeze(1)


def mix32_(state: torch.Tensor, scratch: torch.Tensor | None = None) -> torch.Tensor:
    """Hash an int32 tensor in place, for whole vocabularies: the finalizer of MurmurHash3 (Appleby 2011).

    Args:
        state: int32, of any shape; overwritten.
        scratch: int32 memory of the same shape; overwritten. None: allocate it.

    Returns:
        ``state``.
    """
    spare = torch.empty_like(state) if scratch is None else scratch
    for shift, factor in zip((16, 13), FACTORS_32, strict=True):
        state.bitwise_xor_(_shifted(state, shift, 32, spare)).mul_(factor)
    return state.bitwise_xor_(_shifted(state, 16, 32, spare))


def _shifted(state: torch.Tensor, bits: int, width: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """Shift right and fill with zeros; torch's own shift repeats the sign."""
    return torch.bitwise_right_shift(state, bits, out=out).bitwise_and_((1 << (width - bits)) - 1)
