"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import builtins
import re
import traceback

from lpkit_conformance.explanation.advice import CAUSES, FIXES
from lpkit_conformance.instruments.author_lines import is_authors


def read(kind: str, text: str, error: BaseException | None = None) -> tuple[str, str]:
    """Return cause and fix of an exception of type ``kind``; unknown ones are empty."""
    if error is not None and _prompt_first(error):
        kind = "prompt first"
    elif "assign a NoneType" in text:
        kind = "returned None"
    elif kind in ("AttributeError", "TypeError") and "NoneType" in text:
        kind = "None"
    elif re.search(r"'\w*Config' object has no attribute", text):
        kind = "config field"
    elif (found := re.search(r"'(\w+)' object has no attribute", text)) and not hasattr(builtins, found[1]):
        kind = "missing attribute"
    return CAUSES["exception"].get(kind, ""), FIXES["exception"].get(kind, "")


def _prompt_first(error: BaseException) -> bool:
    """Return True if token ids were passed to an author's argument for logits."""
    return any(
        "logits" in name and isinstance(value, list)
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for name, value in frame.f_locals.items()
        if is_authors(frame.f_code.co_filename) and name in frame.f_code.co_varnames[: frame.f_code.co_argcount]
    )
