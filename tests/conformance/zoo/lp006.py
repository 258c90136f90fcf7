"""Defects that LP006 must catch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from lpkit_conformance.checks import lp0_discovery

from zoo.bases import Dense
from zoo.registry import defect, replaced


def two_entry_points() -> AbstractContextManager[Any]:
    """As if the class were installed under two names."""
    entries = [SimpleNamespace(name=name, value=f"{__name__}:Registered") for name in ("one", "two")]
    return replaced(lp0_discovery, "installed", lambda: entries)


@defect("LP006", "two entry points name the class", surroundings=two_entry_points)
class Registered(Dense):
    pass
