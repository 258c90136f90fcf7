"""Runs the checks of two plugins in one engine, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from lpkit_conformance.activity.admission import keys_read
from lpkit_conformance.checks.base import Engine, Rule, judge
from lpkit_conformance.checks.together.base import PairCheck
from lpkit_conformance.checks.together.pair import Pair, PairedPlugin
from lpkit_conformance.instruments.process_settings import settings_kept
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import RUNNER_HOSTS
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session, guarded


class PairSession(Session):
    """The checks of a plan on two plugins."""

    engine: ClassVar[Engine] = "together"

    def __init__(self, first: Session, second: Session, plan: Plan) -> None:
        self._alone = (first, second)
        super().__init__(f"{first.target} + {second.target}", first.cls, plan)
        self.interfaces = first.interfaces & second.interfaces

    def _hosts(self, checks: Sequence[type[Rule]]) -> tuple[str, ...]:
        """Runners that load both."""
        first, second = self._alone
        return tuple(host for host in first.hosts if host in second.hosts and host in RUNNER_HOSTS)

    def compute(self, check: type[Rule], host: str) -> CheckResult:
        """One check on the pair."""
        begun = time.perf_counter()
        assert issubclass(check, PairCheck)

        def judged() -> CheckResult:
            with settings_kept():
                return judge(check, host, lambda: check().run(self._pairs[host or self.hosts[0]]))

        result = guarded(check, host, judged)
        return replace(result, seconds=round(time.perf_counter() - begun, 4))

    @cached_property
    def _pairs(self) -> dict[str, Pair]:
        """The pair on each runner; all checks share it."""
        first, second = (
            PairedPlugin(name, each.cls, self._two_cases(each))
            for name, each in zip(short_names(*(each.target for each in self._alone)), self._alone, strict=True)
        )
        return {host: Pair.made((first, second), self._alone[0].subjects(host)[0]) for host in self.hosts}

    def hint(self) -> str:
        """Explain why each of the two did nothing, and what to try."""
        return " ".join(f"{session.target}: {session.hint()}" for session in self._alone)

    def _two_cases(self, session: Session) -> tuple[Case, Case]:
        """Return two cases that switch a plugin on: two of its own, or one and a relative of it with other numbers."""
        acting = [self._without_others(session, case) for case in session.acting_cases()]
        relatives = [case for subject in session.subjects(session.hosts[0])[:1] for case in subject.cases[1:2]]
        first, second = [*acting, *relatives, *acting][:2]
        self.notes += session.notes
        return first, second

    def _without_others(self, session: Session, case: Case) -> Case:
        """Return the case without the other plugin's arguments, if the same case is given for both plugins."""
        extra = case.fields.get("extra_args") or {}
        read = {key for host in session.hosts for subject in session.subjects(host) for key in keys_read(subject)}
        arguments = {key: value for key, value in extra.items() if key in read}
        if not arguments or not all(case in each.plan.cases for each in self._alone):
            return case
        return replace(case, fields={**case.fields, "extra_args": arguments})


def short_names(first: str, second: str) -> tuple[str, str]:
    """The two targets without their modules, where that tells them apart."""
    first_name, second_name = (target.rpartition(":")[2] for target in (first, second))
    return (first, second) if first_name == second_name else (first_name, second_name)
