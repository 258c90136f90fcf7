"""A case for which a plugin acts, where the given one does not say all that it takes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lpkit_conformance.activity.acting import Activity, activity
from lpkit_conformance.errors import CaseError
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.settings.cases import MOST_GENERATED, Case
from lpkit_conformance.settings.derived import derived_cases

SOON = 4
"""Output tokens by which a request should be edited: short programs end then."""

ENOUGH = 2
"""Edits within these that rule an accident out."""

EARLY = 12
"""Output tokens in which the better of two derived cases has more edits: most programs end then."""

PLENTY = 26
"""Edits within these with which a derived case is taken without looking at others: half of those of four requests."""

MOST_SWEPT = 2
"""Derived cases whose tokens are looked at, if none of them makes the plugin act as it is."""

MANY = 8
"""Edits in the whole run with which the first may be one that came late."""


@dataclass(frozen=True)
class Found:
    """A case to be used in place of the given one.

    Attributes:
        case: it.
        why: what was found out.
        soon: how often its requests are edited in their first steps.
        early: how often in those and some more.
    """

    case: Case
    why: str
    soon: int = 0
    early: int = 0

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """What makes it better than another one: it acts soon, without aged requests, and often."""
        return self.soon >= ENOUGH, not self.case.generated, self.early


def search(subject: PluginUnderTest) -> Found | None:
    """A case for which the plugin acts soon; None: the given one is as good as any, or makes the plugin raise."""
    given = activity(subject)
    soon = _often(given, 0)
    if given.raises or soon >= ENOUGH or (soon and len(given.lengths) >= MANY):
        return None
    best = _best(subject, _given(subject))
    if not given.acts and not subject.case.fields.get("extra_args"):
        derived = derived_cases(subject.cls, subject.accepts)
        for candidates, plenty in ((_plain(derived), PLENTY), (_switched_on(subject, derived), 0)):
            if best is None or best.soon < ENOUGH:
                best = _best(subject, candidates, best, plenty)
    return None if best is None or best.case == subject.case else best


def _best(
    subject: PluginUnderTest, candidates: Iterable[Found], best: Found | None = None, plenty: int = 0
) -> Found | None:
    """The candidate for which the plugin acts soon and most often; none is tried after one that does well enough."""
    for found in candidates:
        acts = _tried(subject, found.case)
        first = min(acts.lengths, default=None)
        if first is None:
            best = found if best is None and acts.raises else best  # else nobody would hear of the exception
            continue
        start = min(max(first - 1, 0), MOST_GENERATED) if first > SOON else 0
        tried = replace(_aged(found, start, first), soon=_often(acts, start), early=_often(acts, start, EARLY))
        if best is None or tried.rank > best.rank:
            best = tried
        if best.soon >= ENOUGH and best.early >= plenty:
            break
    return best


def _given(subject: PluginUnderTest) -> Iterator[Found]:
    yield Found(subject.case, "")
    yield from _written_out(subject.case)
    yield from _triggered(subject, "")


def _written_out(case: Case) -> Iterator[Found]:
    """With the lists of its arguments generated: phrases, markers and sequences are lists of token ids."""
    for name, value in (case.fields.get("extra_args") or {}).items():
        if isinstance(value, list | tuple) and len(value) > 1 and all(type(token) is int for token in value):
            with contextlib.suppress(CaseError):
                written = Case.parse({**json.loads(case.text), "output_token_ids": list(value)})
                yield Found(written, f"the plugin acts once {name} was generated")


def _plain(derived: Iterable[Case]) -> Iterator[Found]:
    return (Found(case, "derived from the declared parameters") for case in derived)


def _switched_on(subject: PluginUnderTest, derived: Sequence[Case]) -> Iterator[Found]:
    for case in derived[:MOST_SWEPT]:
        yield from _triggered(subject.with_case(case), "derived from the declared parameters; ")


def _triggered(subject: PluginUnderTest, before: str) -> Iterator[Found]:
    case = subject.case
    for stance in activity(subject).triggers:
        if stance.prompted is not None:
            prompt = (*case.prompt_token_ids, stance.prompted)
            why = f"{before}the plugin acts if token {stance.prompted} is in the prompt"
            yield Found(replace(case, prompt_token_ids=prompt), why)
            continue
        token = stance.best if stance.last is None else stance.last
        assert token is not None
        where = "has the largest logit" if stance.last is None else "was generated"
        # A token that the model is made to emit is one that it likes, too.
        why = f"{before}the plugin acts if token {token} {where}"
        yield Found(replace(case, output_token_ids=(*case.output_token_ids, token)), why)


def _aged(found: Found, start: int, first: int) -> Found:
    """The case with requests that are old enough to act soon."""
    if not start:
        return found
    why = "; ".join(part for part in (found.why, f"the plugin first acts after {first} output tokens") if part)
    return Found(replace(found.case, generated=start), why)


def _tried(subject: PluginUnderTest, case: Case) -> Activity:
    return activity(subject if case == subject.case else subject.with_case(case))


def _often(found: Activity, start: int, steps: int = SOON) -> int:
    """How many requests are edited in these steps from this length on, each step counted."""
    return sum(start <= length <= start + steps for length in found.lengths)
