"""Patterns: the requests of a recorded trace that use the plugin when it is replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PATTERNS: dict[str, Callable[[int], bool]] = {
    "all": lambda i: True,
    "none": lambda i: False,
    "alternating": lambda i: i % 2 == 0,
    "mixed": lambda i: i * 7 % 5 >= 2,
}
"""Test by name: True if the request with this number in its trace uses the plugin."""

RECORDED = "recorded"
"""The pattern of a trace that ``lpkit watch`` wrote: its header lists the requests that used the plugin."""


def users(pattern: str, settings: Any, names: list[str]) -> list[bool]:
    """Return True for each request that uses the plugin.

    Args:
        pattern: a key of :data:`PATTERNS`, or :data:`RECORDED`.
    """
    if pattern == RECORDED:
        uses = settings["watch"]["uses"]
        return [bool(uses[name]) for name in names]
    return [PATTERNS[pattern](number) for number in range(len(names))]


TELLING = ("mixed", "alternating")
"""The two patterns that together catch nearly everything that all patterns do, the better pattern first.

docs/explanation/traces.md has the measurement.
"""

TELLING_TRACES = frozenset({"v1_swaps", "v1_async", "v1_sorted", "v1_big", "v2_async", "v2_chunked"})
"""The smallest set of traces that catches everything that all traces of a runner do, by the same measurement."""
