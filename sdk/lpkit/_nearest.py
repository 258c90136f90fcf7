"""The known name nearest to a misspelt one, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest of ``known``, whatever its case, or ""."""
    options = list(known)
    match = difflib.get_close_matches(name, options, n=1)
    if not match:  # difflib is case-sensitive: MINP and MinP share two letters
        folded = {option.lower(): option for option in options}
        match = [folded[hit] for hit in difflib.get_close_matches(name.lower(), folded, n=1)]
    return match[0] if match else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or "" if nothing is near."""
    match = nearest(name, known)
    return f"did you mean {match!r}?" if match else ""


def suggest(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or all that is known if nothing is near."""
    options = list(known)
    return did_you_mean(name, options) or f"known: {', '.join(options)}"
