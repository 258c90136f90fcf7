"""Base class of a check of two plugins, and the modules that these checks need only when they run."""

# mypy: implicit-reexport

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from lpkit_conformance.checks.base import Engine, Rule
from lpkit_conformance.checks.lazily import Later
from lpkit_conformance.settings.hosts import RUNNER_HOSTS

if TYPE_CHECKING:
    from lpkit_conformance.checks.together import both as both
    from lpkit_conformance.checks.together import evidence as evidence
    from lpkit_conformance.checks.together import pair as pairs
else:
    both, evidence = (
        Later("lpkit_conformance.checks.together.both"),
        Later("lpkit_conformance.checks.together.evidence"),
    )
    pairs = Later("lpkit_conformance.checks.together.pair")


class PairCheck(Rule):
    """A rule for two plugins in one engine."""

    engine: ClassVar[Engine] = "together"
    hosts: ClassVar[tuple[str, ...]] = RUNNER_HOSTS
    requires: ClassVar[tuple[str, ...]] = ("LP224",)

    @abstractmethod
    def run(self, pair: pairs.Pair) -> str | None:
        """As of :class:`~lpkit_conformance.checks.base.Check`."""
