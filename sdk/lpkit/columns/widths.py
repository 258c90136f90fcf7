"""Widths of rows on the device."""

from __future__ import annotations


def padded(count: int, least: int = 1) -> int:
    """Width of rows that hold up to ``count`` values: a power of two, so that kernels see few shapes.

    Args:
        count: at least 0.
        least: a power of two; no width is below it.
    """
    return 1 << (count - 1).bit_length() if count > least else least
