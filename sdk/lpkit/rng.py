"""Random numbers that are a function of what they are asked for: (seed, position), never of a call's turn.

Whatever order or batch the rows come in, on whichever rank or device, the same key gives the same number. Integer
operations alone, so the CPU and a GPU agree to the bit. Not for secrets.
"""

from __future__ import annotations

import torch

__all__ = ["mix", "mix32_", "uniform"]

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
FACTORS_32 = (0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32)
"""The multipliers of :func:`mix32_`."""

_MIX = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


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
        state = (state ^ key) + _GOLDEN
        for shift, factor in _MIX:
            state = (state ^ _shifted(state, shift, 64)) * factor
        state = state ^ _shifted(state, 31, 64)
    return state


def uniform(*keys: torch.Tensor) -> torch.Tensor:
    """Numbers that look drawn from [0, 1), and are a function of their keys.

    Args:
        keys: at least one int64 tensor, as for :func:`mix`: ``uniform(seed, position)``.

    Returns:
        float32 in [0, 1) with 24 random bits, of the shape that the keys broadcast to.
    """
    return _shifted(mix(*keys), 40, 64).to(torch.float32) * 2.0**-24


def mix32_(state: torch.Tensor, scratch: torch.Tensor | None = None) -> torch.Tensor:
    """Hash an int32 tensor in place, for whole vocabularies: the finalizer of MurmurHash3 (Appleby 2011).

    Args:
        state: int32, of any shape; overwritten.
        scratch: int32 memory of the same shape; overwritten. None: it is allocated.

    Returns:
        ``state``.
    """
    spare = torch.empty_like(state) if scratch is None else scratch
    for shift, factor in zip((16, 13), FACTORS_32, strict=True):
        state.bitwise_xor_(_shifted(state, shift, 32, spare)).mul_(factor)
    return state.bitwise_xor_(_shifted(state, 16, 32, spare))


def _shifted(state: torch.Tensor, bits: int, width: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """A right shift that fills with zeros; torch's own repeats the sign."""
    return torch.bitwise_right_shift(state, bits, out=out).bitwise_and_((1 << (width - bits)) - 1)
