"""Whether a failing program fails again: where nothing is left of earlier runs in the plugin's classes and modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.results import Finding

T = TypeVar("T")

EARLIER: Final = "(earlier runs in the same process)"
"""What happened before the operations, as one of them."""

MOST_NAMES: Final = 3

SHARED_FIX: Final = (
    "keep what belongs to requests in the instance: create it in `__init__`, not in the class or in a module, which "
    "all instances share"
)

CHANGES_ITS_MIND: Final = (
    "the same operations do not fail each time: what the plugin does depends on something else too, such as memory "
    "addresses (`id`), a clock or random numbers"
)

REPEATABLE_FIX: Final = "make the result a function of the request's arguments and its tokens so far"


def anew(subject: PluginUnderTest, outcome: Callable[[Sequence[Op]], T], ops: Sequence[Op]) -> T:
    """The outcome where the plugin's modules are as they were imported, and nothing is known of its requests."""
    subject.restore_modules()
    known, subject.solo_runs = subject.solo_runs, None
    try:
        return outcome(ops)
    finally:
        subject.solo_runs = known


def unrepeated(finding: Finding, changed: Sequence[str], still: bool) -> Finding:
    """The finding, if its operations pass :func:`anew`.

    Args:
        changed: what the plugin's classes and modules held then that they do not hold when they are imported.
        still: whether the operations failed once more just before that.
    """
    names = ", ".join(changed[:MOST_NAMES]) + (f" and {len(changed) - MOST_NAMES} more" * (len(changed) > MOST_NAMES))
    shared = (
        "these operations fail only after earlier runs, and pass once the class and its modules are as they were "
        f"imported: instances share what is kept there{f'. Changed since: {names}' if names else ''}"
    )
    return replace(
        finding,
        operations=(EARLIER, *finding.operations),
        cause=shared if still else CHANGES_ITS_MIND,
        fix=SHARED_FIX if still else REPEATABLE_FIX,
        scenario={**(finding.scenario or {}), "repeats": False},
    )
