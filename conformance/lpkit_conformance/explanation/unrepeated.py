"""Failing programs that do not fail each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lpkit_conformance.results import Finding

CHANGES_ITS_MIND: Final = (
    "the same operations do not fail each time: what the plugin does depends on something else too, such as memory "
    "addresses (`id`), a clock, random numbers or state that instances share"
)

REPEATABLE_FIX: Final = "make the result a function of the request's arguments and its tokens so far"


def unrepeated(finding: Finding) -> Finding:
    """Return the finding of a program that passes when it is run again."""
    scenario = {**(finding.scenario or {}), "repeats": False}
    return replace(finding, cause=CHANGES_ITS_MIND, fix=REPEATABLE_FIX, scenario=scenario)
