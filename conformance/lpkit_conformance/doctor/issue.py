"""A problem or note of ``lpkit doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

SCHEMA: Final = "lpkit.doctor/1"

Level: TypeAlias = Literal["error", "note"]


@dataclass(frozen=True)
class Issue:
    """A problem, its evidence and its remedy.

    Attributes:
        code: stable name of the kind of issue; docs/how-to/doctor.md lists them.
        level: ``"error"``: a problem with the present setup; ``"note"``: a possible problem, or one in another setup.
        problem: what would happen.
        evidence: how lpkit knows.
        remedy: what to do, or "".
        plugin: name of the entry point, or the passed target; "" if the issue is not about a single plugin.
    """

    code: str
    level: Level
    problem: str
    evidence: str
    remedy: str
    plugin: str = ""
