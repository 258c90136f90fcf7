"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import re

from lpkit_conformance.explanation.advice import CAUSES, FIXES


def read(kind: str, text: str, owner: str) -> tuple[str, str]:
    """Return cause and fix of an exception of type ``kind``; ``owner``: the plugin's class. Unknown ones are empty."""
    if kind in ("AttributeError", "TypeError") and "NoneType" in text:
        kind = "None"
    elif kind == "AttributeError" and re.search(rf"'{re.escape(owner)}' object has no attribute", text):
        kind = "missing attribute"
    return CAUSES["exception"].get(kind, ""), FIXES["exception"].get(kind, "")
