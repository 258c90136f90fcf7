"""Which requests of a recorded trace use the plugin when it is replayed."""

from __future__ import annotations

from collections.abc import Callable

PATTERNS: dict[str, Callable[[int], bool]] = {
    "all": lambda i: True,
    "none": lambda i: False,
    "alternating": lambda i: i % 2 == 0,
    "mixed": lambda i: i * 7 % 5 >= 2,
}
"""By the number of a request in its trace: whether it uses the plugin."""

TELLING = ("alternating", "mixed")
"""Those that catch together what all of them do; docs/evidence/traces-value.md has the measurement."""
