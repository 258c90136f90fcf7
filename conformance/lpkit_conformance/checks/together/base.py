"""Base class of a check of two plugins."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from lpkit_conformance.checks.base import Engine, Rule
from lpkit_conformance.checks.lazily import pairs
from lpkit_conformance.settings.hosts import RUNNER_HOSTS


class PairCheck(Rule):
    """A rule for two plugins in one engine."""

    engine: ClassVar[Engine] = "together"
    hosts: ClassVar[tuple[str, ...]] = RUNNER_HOSTS
    requires: ClassVar[tuple[str, ...]] = ("LP224",)

    @abstractmethod
    def run(self, pair: pairs.Pair) -> str | None:
        """As of :class:`~lpkit_conformance.checks.base.Check`."""
