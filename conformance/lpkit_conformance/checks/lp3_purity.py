"""LP303, and the base of the checks that call ``apply`` on chosen logits, which it makes comparable."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.checks.lazily import (
    Subject,
    acting,
    compare,
    culprit,
    findings,
    stand,
    torch,
    trails,
)
from lpkit_conformance.explanation import advice
from lpkit_conformance.results import Failed, Finding, NeverActive, Skipped
from lpkit_conformance.subject.memo import fact


class ContractCheck(Check):
    """Applies the plugin to chosen logits, in the middle of a run and at the steps at which it acts."""

    requires: ClassVar[tuple[str, ...]] = ("LP101", "LP301")
    needs_action = True

    @abstractmethod
    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        """As ``run``."""

    def standings(self, subject: Subject) -> Iterator[stand.Standing]:
        """Return the batches to judge."""
        yield stand.stand_after(subject, mixed_arrivals(6))
        yield from acting.activity(subject).standings()

    def run(self, subject: Subject) -> str | None:
        if LP303.code in self.requires and impure(subject):  # LP303 may be ignored
            raise Skipped("a second call of `apply` gives a different result, which LP303 judges")
        note, acted = None, False
        mild: list[Failed] = []
        for standing in self.standings(subject):
            acted |= standing.acts
            given: list[torch.Tensor] = []

            def noted(logits: torch.Tensor, given: list[torch.Tensor] = given, of: stand.Standing = standing) -> Any:
                given[:] = [logits.clone()]
                return of.again(logits)

            try:
                note = self.judge(subject, standing.logits, noted)
            except Failed as failure:
                shown = given[0] if given and self.method == "apply" else None
                finding = standing.located(self.explained(subject, failure.finding), shown, subject.cases)
                failed = Failed(finding, advice=failure.advice)
                if not failed.advice:
                    raise failed from None
                mild.append(failed)
            subject.plugin.restore_modules()  # LP108 judges what instances share
        if not acted:
            raise NeverActive
        for failed in mild:
            raise failed
        return note

    def explained(self, subject: Subject, finding: Finding) -> Finding:
        """Return the finding with its cause, if an experiment tells it."""
        return finding


FEW_CALLS = 4
"""Calls of LP303 with other logits in between, and after them; more show what a plugin does at every 50th call."""

FEW_BATCHES = 4
"""Batches of LP303 in which calls get other logits before."""


class LP303(ContractCheck):
    """``apply`` may be called twice.

    Two calls for the same step give the same result.

    Why: the engine applies processors to partial prefills, warm-up batches and split verifications, and discards their
    tokens.

    Fix: count and advance nothing in ``apply``. The tokens say where a request is: the length of its output list (V1),
    ``ctx.pos`` (V2), ``rows.output_len`` (lpkit).
    """

    code, name = "LP303", "pure-apply"
    quick, suspects = "first", ("LP602", "LP605")
    requires = ("LP101", "LP301", "LP507", "LP601")
    edited: bool | None = None
    """True if a batch was edited; None before the first batch."""

    def run(self, subject: Subject) -> str | None:
        if failure := impure(subject):
            raise failure
        return None

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        first = again(logits.clone()).clone()
        edits = not torch.equal(first, logits)
        many = self.edited is None or (edits and not self.edited)  # the first batch, and the first that it edits
        self.edited = edits or bool(self.edited)
        for n in range(2, culprit.MOST_CALLS if many else 2 * FEW_CALLS):
            if n < FEW_CALLS:
                again(logits.flip(0).flip(1))  # other logits in between: they must not be remembered
            other = again(logits.clone())
            unlike = compare.unequal(first, other)
            if bool(unlike.any()):
                where = {"row": str(compare.first_row(unlike))}
                raise Failed(f"call {n} of apply gives a different result", where, "equal logits", "different logits")
        return None

    def explained(self, subject: Subject, finding: Finding) -> Finding:
        for standing in self.standings(subject):  # new ones: those that were judged have advanced
            key, name, line = culprit.advancing(subject.plugin.cls, standing)
            if key:
                cause = advice.cause(key, self.code).format(name=name)
                fix = advice.fix("advances", *findings.readers_of(subject))
                line = line or findings.making_line(subject.plugin.cls, name, "__init__")
                finding = replace(finding, cause=cause, fix=fix, location=line, state=name)
                break
        line = finding.location or findings.at_fault(subject, "apply")
        used = advice.sign(self.code, line)
        if not used and self._remembers(subject):
            cause = "; ".join(filter(None, (finding.cause, advice.cause("past-logits"))))
            finding = replace(finding, cause=cause, fix=advice.fix("past-logits"))
        if used:
            name = trails.changed_by(line) if used == "consumes" else ""
            taken = advice.cause(used, self.code).format(name=f" of `{name}`" if name else "")
            causes = "; ".join(filter(None, (finding.cause, taken)))
            return replace(
                finding, cause=causes, fix=advice.fix(used, self.code), location=line, state=name or finding.state
            )
        return finding

    def _remembers(self, subject: Subject) -> bool:
        """Return True if the result depends on the logits of earlier calls, and the same ones give the same."""
        changes = (*findings.OTHER_LOGITS, findings.OTHER_LOGITS[0])
        with contextlib.suppress(Exception):  # whatever the plugin raises: a cause is being looked for
            for standings in islice(zip(*(self.standings(subject) for _ in changes), strict=False), FEW_BATCHES):
                results = []
                for standing, change in zip(standings, changes, strict=True):
                    for _ in range(culprit.MOST_CALLS):
                        standing.again(change(standing.logits))
                    results.append(standing.again(standing.logits.clone()).clone())
                *others, again = (bool(compare.unequal(results[0], result).any()) for result in results[1:])
                if any(others) and not again:
                    return True
        return False


@fact
def impure(subject: Subject) -> Failed | None:
    """Return what LP303 finds: comparisons of two calls of ``apply`` then say nothing."""
    try:
        ContractCheck.run(LP303(), subject)
    except Failed as failure:
        return failure
    return None
