"""A case for which a plugin acts, where the given one does not say all that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lpkit_conformance.activity.acting import Activity, activity
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.settings.cases import MOST_GENERATED, Case
from lpkit_conformance.settings.derived import derived_cases

SOON = 4
"""Output tokens by which a request should be edited: short programs end then."""

ENOUGH = 2
"""Edits within these that rule an accident out."""

MANY = 8
"""Edits in the whole run with which the first may be one that came late."""


@dataclass(frozen=True)
class Found:
    """A case to be used in place of the given one.

    Attributes:
        case: it.
        why: what was found out.
    """

    case: Case
    why: str


def search(subject: PluginUnderTest) -> Found | None:
    """A case for which the plugin acts soon; None: the given one is as good as any, or makes the plugin raise."""
    given = activity(subject)
    soon = _often(given, 0)
    if given.raises or soon >= ENOUGH or (soon and len(given.lengths) >= MANY):
        return None
    best: tuple[int, Found] | None = None
    for found in _candidates(subject):
        acts = _tried(subject, found.case)
        first = min(acts.lengths, default=None)
        if first is None:
            continue
        start = min(max(first - 1, 0), MOST_GENERATED) if first > SOON else 0
        often = _often(acts, start)
        if best is None or often > best[0]:
            best = often, _aged(found, start, first)
        if often >= ENOUGH:
            break
    if best is None or best[1].case == subject.case:
        return None
    return best[1]


def _candidates(subject: PluginUnderTest) -> Iterator[Found]:
    case = subject.case
    yield Found(case, "")
    yield from _triggered(subject, "")
    if activity(subject).acts or case.fields.get("extra_args"):
        return
    derived = derived_cases(subject.cls, subject.accepts)
    for one in derived:
        yield Found(one, "derived from the declared parameters")
    for one in derived[:2]:
        yield from _triggered(_with(subject, one), "derived from the declared parameters; ")


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


def _with(subject: PluginUnderTest, case: Case) -> PluginUnderTest:
    return replace(subject, case=case, activity=None, solo_runs=None)


def _tried(subject: PluginUnderTest, case: Case) -> Activity:
    return activity(subject if case == subject.case else _with(subject, case))


def _often(found: Activity, start: int) -> int:
    """How many requests are edited in the first steps from this length on, each step counted."""
    return sum(start <= length <= start + SOON for length in found.lengths)
