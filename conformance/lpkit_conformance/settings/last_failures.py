"""Checks that failed in their last run: they run first while a plugin is being developed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from lpkit_conformance.results import BAD, TargetResult

FILE = Path(".lpkit", "last-failures.json")
"""Below the current folder, in the folder that also holds the saved failures."""


def load() -> dict[str, list[str]]:
    """Codes by target; empty if nothing is remembered, or what is there cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        saved = json.loads(FILE.read_text(encoding="utf-8"))
        if isinstance(saved, dict):
            return {target: [str(code) for code in codes] for target, codes in saved.items() if isinstance(codes, list)}
    return {}


def remember(results: Iterable[TargetResult]) -> None:
    """Record the checks that failed. Records of checks that did not run stay. The folder may be read-only."""
    before = load()
    codes_by_target = dict(before)
    for result in results:
        ran = {check.code for check in result.checks if check.status not in ("blocked", "skipped")}
        failed = {check.code for check in result.checks if check.status in BAD}
        codes = sorted(({*codes_by_target.get(result.target, ())} - ran) | failed)
        codes_by_target[result.target] = codes
    codes_by_target = {target: codes for target, codes in codes_by_target.items() if codes}
    if codes_by_target == before:
        return
    with contextlib.suppress(OSError):
        FILE.parent.mkdir(parents=True, exist_ok=True)
        (FILE.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        FILE.write_text(json.dumps(codes_by_target, indent=1) + "\n", encoding="utf-8")
