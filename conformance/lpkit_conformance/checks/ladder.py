"""What the checks that run programs have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.hosts import Host
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.hazards import Hazard
from lpkit_conformance.oracle.verify import default_host, verify
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Program, Step, program


class LadderCheck(Check):
    """Programs with one hazard each: no request may come out otherwise than alone.

    Attributes:
        hazard: what a failing program holds that is of this check's kind; None: any, or what its host does.
    """

    hazard: ClassVar[Hazard | None] = None
    needs_action: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("LP101", "LP301", "LP201")
    method = STATE

    @abstractmethod
    def programs(self, subject: PluginUnderTest) -> Iterable[Program]:
        """What to run."""

    def host(self, subject: PluginUnderTest, max_num_seqs: int) -> Host:
        """Who runs it."""
        return default_host(subject, max_num_seqs)

    def run(self, subject: PluginUnderTest) -> str | None:
        return verify(subject, self.programs(subject), self.host, self.hazard)


def host_after(subject: PluginUnderTest, ops: Iterable[Op]) -> Host:
    """A host that has run these operations; nothing is compared."""
    host = default_host(subject, subject.max_num_seqs)
    for _ in host.run(ops):
        pass
    return host


def everyday() -> Program:
    """Arrivals, tokens and departures, in batches of which all, some and none use the plugin."""
    users = [Arrive(f"u{i}", i) for i in range(3)]
    some = [*mixed_arrivals(4), Arrive("z", None), Step(2), *(Finish(name) for name in ("r0", "r1", "r3", "z"))]
    left = [Finish(user.request) for user in users]
    # V2 calls apply for a stranger whose temperature is not 1, as that of "y".
    return program("everyday", users, Step(), some, Step(), left, Step(2), Arrive("y", None), Step())


CHARACTERS = 12
"""Different requests among mixed arrivals before they repeat; a multiple of the periods below."""

GREEDY = (2, 3, 10)
"""Those of them that are greedy: one without the plugin, two with."""


def mixed_arrivals(count: int, prefix: str = "r", start: int = 0) -> Iterator[Arrive]:
    """``count`` arrivals with different arguments; every third does not use the plugin, and some are greedy."""
    for i in range(start, start + count):
        variant = None if i % 3 == 2 else i % 4
        character = i % CHARACTERS
        yield Arrive(f"{prefix}{i}", variant, 5 + i % 3, greedy=character in GREEDY, character=f"c{character}")
