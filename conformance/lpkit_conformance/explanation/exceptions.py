"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import builtins
import re

from lpkit_conformance.explanation.advice import CAUSES, FIXES


def read(kind: str, text: str) -> tuple[str, str]:
    """Return cause and fix of an exception of type ``kind``; unknown ones are empty."""
    if "assign a NoneType" in text:
        kind = "returned None"
    elif kind in ("AttributeError", "TypeError") and "NoneType" in text:
        kind = "None"
    elif re.search(r"'\w*Config' object has no attribute", text):
        kind = "config field"
    elif (found := re.search(r"'(\w+)' object has no attribute", text)) and not hasattr(builtins, found[1]):
        kind = "missing attribute"
    return CAUSES["exception"].get(kind, ""), FIXES["exception"].get(kind, "")
