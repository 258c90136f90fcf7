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


def hold(name: str, found: Any) -> None:
    """Fail unless ``found`` is what ``golden/<name>.json`` holds."""
    file = FOLDER / f"{name}.json"
    now = json.loads(json.dumps(found))
    held = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    if WRITING and now != held:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        pytest.fail(f"wrote {file.name}; run again without LPKIT_GOLDEN to compare", pytrace=False)
    if now != held:
        sides = (json.dumps(side, indent=1, sort_keys=True).splitlines() for side in (held, now))
        pytest.fail("\n".join(difflib.unified_diff(*sides, file.name, "now", lineterm="", n=4)), pytrace=False)
