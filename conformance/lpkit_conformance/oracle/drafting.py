"""The plugin in an engine with drafts."""

from __future__ import annotations

from dataclasses import replace

from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.worlds import SPECULATING
from lpkit_conformance.oracle.verify import solo_runs


def speculating(subject: PluginUnderTest) -> PluginUnderTest | None:
    """The plugin where there are drafts; alone its requests are still in an engine without.

    None if its constructor raises: with ``ValueError`` it may refuse them, and anything else LP221 reports.
    """
    solo_runs(subject)
    there = replace(subject, world=SPECULATING)
    try:
        drive(there)
    except PluginError:
        return None
    return there
