"""Comparison with the files in ``golden/``.

``LPKIT_GOLDEN=write pytest tests/contracts`` (``make golden``) writes those that differ; a test that wrote fails, so
that such a run cannot be mistaken for one that compared.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "golden"
WRITING = os.environ.get("LPKIT_GOLDEN", "") == "write"


WIDTH = 110
"""Of a line of a file: an option or a plugin takes a line, and a difference shows what differs."""


def lines(value: Any, indent: int = 0) -> str:
    """Return ``value`` as JSON; what fits into a line is not broken."""
    flat = json.dumps(value)
    if indent + len(flat) <= WIDTH or not isinstance(value, dict | list):
        return flat
    named = {f"{json.dumps(key)}: ": item for key, item in value.items()} if isinstance(value, dict) else None
    items = named.items() if named is not None else [("", item) for item in value]
    inner = (f"{' ' * (indent + 1)}{key}{lines(item, indent + 1)}" for key, item in items)
    opening, closing = "{}" if named is not None else "[]"
    return "\n".join((opening, ",\n".join(inner), " " * indent + closing))


def hold(name: str, found: Any) -> None:
    """Fail unless ``found`` is what ``golden/<name>.json`` holds."""
    file = FOLDER / f"{name}.json"
    now = json.loads(json.dumps(found))
    held = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    if WRITING and now != held:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines(now) + "\n", encoding="utf-8")
        pytest.fail(f"wrote {file.name}; run again without LPKIT_GOLDEN to compare", pytrace=False)
    if now != held:
        sides = (lines(side).splitlines() for side in (held, now))
        pytest.fail("\n".join(difflib.unified_diff(*sides, file.name, "now", lineterm="", n=4)), pytrace=False)
