"""The list of the zoo's specimens, and a function that runs the suite on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import lpkit
from lpkit import v1, v2
from lpkit.loading import interfaces_of
from lpkit_conformance.checks.catalogue import by_code, one_report_each
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS, RUNNER_HOSTS, hosts_of
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Specimen:
    """A processor and a case that switches it on.

    Attributes:
        target: the class; sometimes something that should be one.
        style: ``v1``, ``v2``, ``portable``, ``adapter`` or ``packaging``.
        what: one line.
        surroundings: what has to be true of the process while it is checked.
        others: further cases.
    """

    name: str
    target: Any
    style: str
    case: Case
    what: str
    surroundings: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)
    others: tuple[Case, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        return (self.case, *self.others)

    @property
    def id(self) -> str:
        return f"{self.style}-{self.name}"


@dataclass(frozen=True, eq=False)
class Defect(Specimen):
    """A specimen with a single defect.

    Attributes:
        code: the check that must catch it.
        missed: the reason why no check catches it, for known gaps of the suite.
        also: other checks that it may fail; where such a check is required, its own check is blocked.
        fix, line, cause: texts in the fix, in the line that the finding names, and in its cause.
        state: what the finding calls the state at fault.
        advice: the key of the whole fix in ``advice.toml``, and of the proof at the end of the cause if there is one.
    """

    code: str = ""
    missed: str = ""
    also: tuple[str, ...] = ()
    fix: str = ""
    line: str = ""
    cause: str = ""
    state: str = ""
    advice: str = ""

    @property
    def described(self) -> bool:
        """True if more is known of its finding than the code."""
        return any((self.fix, self.line, self.cause, self.state, self.advice))


_BASES = (("v1", v1.LogitsProcessor), ("v2", v2.LogitsProcessor))
CORRECT: list[Specimen] = []
DEFECTS: list[Defect] = []
MISSED: list[Defect] = []


def specimens() -> list[Specimen]:
    """Every specimen: correct ones, defects, and defects that no check catches."""
    return [*CORRECT, *DEFECTS, *MISSED]


def specimen(identity: str) -> Specimen:
    """The specimen ``STYLE-NAME``."""
    (found,) = (item for item in specimens() if item.id == identity)
    return found


def _style(target: Any) -> str:
    mro = getattr(target, "__mro__", ())  # `issubclass` and `interfaces_of` walk through all specimens
    if lpkit.AdapterLogitsProcessor in mro:
        return "adapter"
    if lpkit.LogitsProcessor in mro:
        return "portable"
    return "+".join(runner for runner, base in _BASES if base in mro)


def defect(
    code: str,
    what: str,
    *,
    case: dict[str, Any] | None = None,
    style: str = "",
    name: str = "",
    missed: str = "",
    also: tuple[str, ...] = (),
    fix: str = "",
    line: str = "",
    cause: str = "",
    state: str = "",
    advice: str = "",
    surroundings: Callable[[], AbstractContextManager[Any]] = nullcontext,
    others: Sequence[dict[str, Any]] = (),
) -> Callable[[T], T]:
    """Class decorator: register a defect that the check ``code`` must catch."""

    def note(target: T) -> T:
        found = Defect(
            name or getattr(target, "__name__", "") or type(target).__name__,
            target,
            style or _style(target),
            Case.parse(case if case is not None else getattr(target, "CASE", {})),
            what,
            surroundings,
            tuple(map(Case.parse, others)),
            code,
            missed,
            also,
            fix,
            line,
            cause,
            state,
            advice,
        )
        (MISSED if missed else DEFECTS).append(found)
        return target

    return note


def sound(
    what: str,
    *,
    case: dict[str, Any] | None = None,
    name: str = "",
    surroundings: Callable[[], AbstractContextManager[Any]] = nullcontext,
    others: Sequence[dict[str, Any]] = (),
) -> Callable[[T], T]:
    """Class decorator: register a processor that no check may fail."""

    def note(target: Any) -> Any:
        given = Case.parse(case if case is not None else getattr(target, "CASE", {}))
        CORRECT.append(
            Specimen(
                name or target.__name__,
                target,
                _style(target),
                given,
                what,
                surroundings,
                tuple(map(Case.parse, others)),
            )
        )
        return target

    return note


def run_all(
    specimen: Specimen,
    *,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    seed: int = 0,
    device: str = "cpu",
) -> list[CheckResult]:
    """The results of the selected checks (all by default) and of what they require.

    A defect is also judged on a host that must be asked for, if the check that must catch it runs on no other.
    """
    hosts = None
    if isinstance(specimen, Defect) and not select:
        asked = by_code()[specimen.code].hosts
        if asked and all(HOSTS[host].asked_for for host in asked):
            hosts = hosts_of(interfaces_of(specimen.target), (*RUNNER_HOSTS, *asked))
    plan = Plan(cases=specimen.cases, select=select, ignore=ignore, seed=seed, device=device, hosts=hosts)
    with specimen.surroundings():
        return list(one_report_each(list(Session(specimen.id, specimen.target, plan).results())))


def run_check(specimen: Specimen, code: str, *, seed: int = 0) -> list[CheckResult]:
    """The results of one check on each of its hosts, whatever the checks that it requires say."""
    plan = Plan(cases=specimen.cases, select=(code,), seed=seed)
    with specimen.surroundings():
        session = Session(specimen.id, specimen.target, plan)
        return [session.judged(label) for label in session.agenda.requires if label.partition("[")[0] == code]


def outcome(results: list[CheckResult], code: str) -> set[str]:
    """Statuses of one check over the hosts."""
    return {result.status for result in results if result.code == code}


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute with another value for a while."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
