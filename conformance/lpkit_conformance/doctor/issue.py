"""One thing that ``lpkit doctor`` has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

SCHEMA: Final = "lpkit.doctor/1"

Level: TypeAlias = Literal["error", "note"]


@dataclass(frozen=True)
class Issue:
    """What is wrong, why, and what to do.

    Attributes:
        code: stable name of the kind of issue; docs/how-to/doctor.md lists them.
        level: ``"error"``: a problem with the present setup; ``"note"``: a possible problem, or one in another setup.
        problem: what would happen.
        evidence: how that is known.
        remedy: what to do, or "".
        plugin: name of the entry point, or what was passed; "" if it is about no single one.
    """

    code: str
    level: Level
    problem: str
    evidence: str
    remedy: str
    plugin: str = ""
