"""Placeholders that asynchronous scheduling leaves at the end of V1's output lists."""

from __future__ import annotations

from collections.abc import Sequence

from lpkit.history.staged import PLACEHOLDER


def placeholders(outputs: Sequence[int]) -> int:
    """Count the last outputs of a request that are not known yet."""
    length = len(outputs)
    while length and outputs[length - 1] == PLACEHOLDER:
        length -= 1
    return len(outputs) - length
