"""Find the known name nearest to a misspelt name, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the nearest of ``known``, ignoring case, or ""."""
    options = list(names)
    match = difflib.get_close_matches(name, options, n=1)
    if not match:  # difflib is case-sensitive: MINP and MinP share two letters
        folded = {option.lower(): option for option in options}
        match = [folded[hit] for hit in difflib.get_close_matches(name.lower(), folded, n=1)]
    return match[0] if match else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``did you mean 'x'?``, or "" if no name is near."""
    match = nearest(name, names)
    return f"did you mean {match!r}?" if match else ""


def suggest(name: str, names: Iterable[str]) -> str:
    """Return ``did you mean 'x'?``, or all known names if no name is near."""
    options = list(names)
    return did_you_mean(name, options) or f"known: {', '.join(options)}"
