"""Base classes of the checks that run programs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.lazily import Host, Subject, Watch, calls, compare, parts, trails, verify
from lpkit_conformance.explanation.hazards import Hazard
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Program, Step, program
from lpkit_conformance.results import Failed, Skipped


class LadderCheck(Check):
    """Programs with one hazard each: every request must get the same as alone.

    Attributes:
        hazard: the operation that a failing program must contain to belong to this check; None: any program.
        shared: True if several cases share its programs; each case plays at least one.
    """

    hazard: ClassVar[Hazard | None] = None
    shared: ClassVar[bool] = True
    needs_action: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("LP101", "LP301", "LP201")
    suspects: ClassVar[tuple[str, ...]] = ("LP303",)
    method = STATE

    @abstractmethod
    def programs(self, subject: Subject) -> Iterable[Program]:
        """The programs to run."""

    def host(self, subject: Subject, max_num_seqs: int) -> Host:
        """The host that runs them."""
        return parts.default_host(subject, max_num_seqs)

    def run(self, subject: Subject) -> str | None:
        programs = [*self.programs(subject)]
        return verify.verify(
            subject, subject.setup.share(programs) if self.shared else programs, self.host, self.hazard
        )


def host_after(subject: Subject, ops: Iterable[Op]) -> Host:
    """Return a host that has run these operations, without comparisons."""
    host = parts.default_host(subject, subject.setup.max_num_seqs)
    for _ in host.run(ops):
        pass
    return host


def observed(subject: Subject, ops: Iterable[Op], pause: float = 0.0) -> list[calls.Observation]:
    """Return what a new instance makes of these operations; ``pause``: seconds before each step.

    Raises:
        Skipped: the plugin raises, and does not if no request leaves.
    """
    ops, observations = tuple(ops), []
    try:
        for seen in parts.default_host(subject, subject.setup.max_num_seqs).run(ops):
            observations.append(seen)
            time.sleep(pause)
    except calls.PluginError as error:
        staying = [op for op in ops if not isinstance(op, Finish)]
        if len(staying) == len(ops):
            raise
        observed(subject, staying)
        raise Skipped("the plugin raises once a request has left, which LP202 to LP206 judge") from error
    return observations


def play(
    subject: Subject,
    ops: Iterable[Op],
    watched: Callable[[Host, bool], Watch],
    make_host: Callable[[Subject, int], Host] | None = None,
) -> None:
    """Run operations under a watch; if that fails, run them again and follow the author's lines, to name the line.

    Args:
        watched: returns the watch of :mod:`engine_data` for a host, and for True, if it follows lines.
        make_host: of the engine; by default the setup's.

    Raises:
        Skipped: the plugin raises once a request has left.
    """

    def run(follow: bool) -> None:
        host = (make_host or parts.default_host)(subject, 8)
        with host.driver.watched(watched(host, follow)):
            for _ in host.run(ops):
                pass

    try:
        run(False)
    except Failed:
        run(True)
        raise
    except calls.PluginError:
        observed(subject, ops)
        raise


def parted(first: Iterable[calls.Observation], second: Iterable[calls.Observation]) -> tuple[int, int] | None:
    """Return the step and the row at which two runs of the same operations begin to differ; None if they do not."""
    for left, right in zip(first, second, strict=True):
        unlike = compare.unequal(left.after, right.after)
        if bool(unlike.any()):
            return left.step, compare.first_row(unlike)
    return None


def parting_of(first: Callable[[], object], second: Callable[[], object]) -> tuple[str, str]:
    """Return the name and ``file:line`` by which two runs of the author's code begin to differ; empty if none does."""
    with trails.trail() as left:
        first()
    with trails.trail() as right:
        second()
    return trails.parting(left, right)


def differing(
    summary: str,
    where: dict[str, str],
    difference: tuple[int, int, float, float, str],
    cause: str = "",
    fix: str = "",
    location: str = "",
) -> Failed:
    """Return the failure for a row that is not as expected; ``found``: its first difference."""
    row, token, expected, got, _ = difference
    where = {"row": str(row), **where, "token id": str(token)}
    return Failed(summary, where, f"{expected:g}", f"{got:g}", cause=cause, fix=fix, location=location)


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
"""Greedy requests among them: one without the plugin, two with it."""


def mixed_arrivals(count: int, prefix: str = "r", start: int = 0) -> Iterator[Arrive]:
    """``count`` arrivals with different arguments; every third does not use the plugin, and some are greedy."""
    for i in range(start, start + count):
        variant = None if i % 3 == 2 else i % 4
        character = i % CHARACTERS
        yield Arrive(f"{prefix}{i}", variant, 5 + i % 3, greedy=character in GREEDY, character=f"c{character}")
