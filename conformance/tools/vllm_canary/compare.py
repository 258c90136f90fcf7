"""Compares what was read of releases with ``vllm_api/facts.toml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lpkit_conformance.vllm_api.facts import VLLM, Release, in_full

Found = Mapping[Release, Mapping[str, str]]
"""Values by release and by key."""


@dataclass(frozen=True)
class Surprise:
    """A fact that differs from the table, with the oldest release in which it does."""

    release: Release
    fact: str
    expected: str
    found: str


def surprises(facts: Found) -> list[Surprise]:
    """List the differences, each once. A release that the table lacks is expected to be as the newest."""
    seen: dict[tuple[str, str, str], Surprise] = {}
    for release in sorted(facts):
        for key, value in facts[release].items():
            expected = VLLM.value(key, release)
            if value != expected:
                seen.setdefault((key, expected, value), Surprise(release, key, expected, value))
    return list(seen.values())


def sections(facts: Found) -> list[str]:
    """Write the table's section for each newer release that it lacks: the facts that changed in it."""
    before = {key: VLLM.value(key, None) for key in VLLM.facts}
    written = []
    for release in sorted(release for release in facts if release > VLLM.rows[-1].release):
        changed = {key: value for key, value in facts[release].items() if value != before[key]}
        before.update(changed)
        written.append("\n".join([f'[releases."{in_full(release)}"]', *map(_line, changed.items())]))
    return written


def _line(item: tuple[str, str]) -> str:
    key, value = item
    entries = value.split("; ")
    return f"{key} = {json.dumps(entries if len(entries) > 1 else value)}"
