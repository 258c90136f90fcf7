"""Which requests of a recorded trace use the plugin when it is replayed."""

from __future__ import annotations

from collections.abc import Callable

PATTERNS: dict[str, Callable[[int], int | None]] = {
    "all": lambda i: i % 4,
    "none": lambda i: None,
    "alternating": lambda i: None if i % 2 else (i // 2) % 4,
    "mixed": lambda i: None if i * 7 % 5 < 2 else i % 4,
}
"""By the number of a request in its trace: which variant of the case it gets; None: it does not use the plugin."""

TELLING = ("alternating", "mixed")
"""Those that catch together what all of them do; docs/evidence/traces-value.md has the measurement."""
