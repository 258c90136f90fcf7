"""docs/evidence/vllm-releases.md: the facts, release by release."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from vllm_canary.facts import FACTS, Fact
from vllm_canary.releases import Release, written

HEAD = """<!-- Written by conformance/tools/vllm_canary (make canary); edit that instead. -->

# vLLM's releases

What lpkit relies on in vLLM, read from the sources of {count} releases, {first} to {last}, on {date} by `make canary`.
It downloads each release, reads a few files of it, and compares the facts with those that lpkit takes for granted
(`conformance/tools/vllm_canary/history.py`); a fact that changes in a new release fails it. No vLLM is installed; the
batch bookkeeping alone is run, in a separate process, with random operations next to lpkit's.

The first column says from which release on a value holds. "-": the release has nothing of it; `*`: abstract.
What the facts mean for a plugin is in [compatibility](../explanation/compatibility.md).
"""


def page(found: Mapping[Release, Mapping[str, str]], origins: Mapping[Release, str], date: str) -> str:
    """The whole page; ``origins``: the files that were read."""
    releases = sorted(found)
    head = HEAD.format(count=len(releases), first=written(releases[0]), last=written(releases[-1]), date=date)
    return "\n".join([head, *tables(found), *changes(found), *files(releases, origins)])


def tables(found: Mapping[Release, Mapping[str, str]]) -> Iterator[str]:
    """One table for each group of facts."""
    for group in dict.fromkeys(fact.group for fact in FACTS):
        yield f"## {group}"
        yield ""
        yield "| | since | |"
        yield "|---|---|---|"
        for fact in FACTS:
            if fact.group == group:
                title = fact.title
                for release, value in spans(fact, found):
                    yield f"| {title} | {written(release)} | {shown(value)} |"
                    title = ""
        yield ""


def spans(fact: Fact, found: Mapping[Release, Mapping[str, str]]) -> Iterator[tuple[Release, str]]:
    """(release, value) where the value changes."""
    last = None
    for release in sorted(found):
        value = found[release][fact.name]
        if value != last:
            yield release, value
            last = value


def changes(found: Mapping[Release, Mapping[str, str]]) -> Iterator[str]:
    """What changed, by release, for upgrades."""
    releases = sorted(found)
    yield "## What changed"
    yield ""
    yield "| release | |"
    yield "|---|---|"
    for before, after in itertools.pairwise(releases):
        groups: dict[str, list[str]] = {}
        for fact in FACTS:
            if found[before][fact.name] != found[after][fact.name]:
                groups.setdefault(fact.group, []).append(fact.title)
        if groups:
            texts = [f"{group}: {'; '.join(titles)}" for group, titles in groups.items()]
            yield f"| {written(after)} | {'. '.join(texts)} |"
    yield ""


def files(releases: Sequence[Release], origins: Mapping[Release, str]) -> Iterator[str]:
    """What was read."""
    wheels = [written(release) for release in releases if origins[release].endswith(".whl")]
    yield "## What was read"
    yield ""
    yield ", ".join(written(release) for release in releases) + "."
    yield ""
    if wheels:
        yield f"From the source distribution; {', '.join(wheels)} from the wheel, because the index has no other file."
    else:
        yield "From the source distributions."
    yield ""


def shown(value: str) -> str:
    """Signatures and names as code; of features, each with its condition on a line of its own."""
    if " when " in value:
        features = (feature.partition(" when ") for feature in value.split("; "))
        return "<br>".join(_what(what) + (f" when `{condition}`" if when else "") for what, when, condition in features)
    return f"`{value}`" if "_" in value or "(" in value else value


def _what(feature: str) -> str:
    return f"`{feature}`" if feature.endswith("()") else feature.replace("_", "\\_")
