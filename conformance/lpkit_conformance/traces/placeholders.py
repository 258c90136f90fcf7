"""What asynchronous scheduling leaves at the end of V1's output lists."""

from __future__ import annotations

from collections.abc import Sequence

from lpkit.history.v1 import PLACEHOLDER


def placeholders(outputs: Sequence[int]) -> int:
    """How many of a request's last outputs are not known yet."""
    known = len(outputs)
    while known and outputs[known - 1] == PLACEHOLDER:
        known -= 1
    return len(outputs) - known
