"""A case for which a plugin acts, where the given one does not say all that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lpkit_conformance.activity.acting import Activity, activity
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.settings.cases import MOST_GENERATED, Case
from lpkit_conformance.settings.derived import derived_cases

SOON = 4
"""Output tokens by which programs see a plugin act often enough."""


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
    """A case for which the plugin acts soon; None: the given one is as good as any."""
    if _soon(activity(subject)):
        return None
    best: tuple[int, Found] | None = None
    for found in _candidates(subject):
        first = _first(_tried(subject, found.case))
        if first is None:
            continue
        found = _aged(found, first)
        if best is None or first < best[0]:
            best = first, found
        if first <= SOON:
            break
    return best[1] if best else None


def _candidates(subject: PluginUnderTest) -> Iterator[Found]:
    case = subject.case
    if activity(subject).acts:
        yield Found(case, "")
        return
    yield from _triggered(subject, "")
    if case.fields.get("extra_args"):
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


def _aged(found: Found, first: int) -> Found:
    """The case with requests that are old enough to act soon."""
    if first <= SOON:
        return found
    generated = min(found.case.generated + first - 1, MOST_GENERATED)
    why = "; ".join(part for part in (found.why, f"the plugin first acts after {first} output tokens") if part)
    return Found(replace(found.case, generated=generated), why)


def _with(subject: PluginUnderTest, case: Case) -> PluginUnderTest:
    return replace(subject, case=case, activity=None, solo_runs=None)


def _tried(subject: PluginUnderTest, case: Case) -> Activity:
    return activity(subject if case == subject.case else _with(subject, case))


def _first(found: Activity) -> int | None:
    """The length at which the plugin acts first."""
    return min((stance.length for stance in found.stances), default=None)


def _soon(found: Activity) -> bool:
    first = _first(found)
    return first is not None and first <= SOON
