"""Renders the table of facts for the documentation, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.vllm_api.facts import ABSENT, VLLM, Fact, Row, in_full, in_short

HEAD = """# vLLM's releases

What lpkit relies on in vLLM, in {count} releases, {first} to {last}. On {date} `make canary` compared these facts with
the sources of every release. It downloads a release and reads a few of its files, without installing vLLM. It runs only
the batch bookkeeping, in a separate process, with random operations next to lpkit's.

A value holds from its release on. `*`: abstract. What the facts mean for a plugin is in
[compatibility](../explanation/compatibility.md).
"""


def releases() -> str:
    """Page of all facts: by group, and by release."""
    first, last = VLLM.names[0], VLLM.names[-1]
    head = HEAD.format(count=len(VLLM.rows), first=first, last=last, date=VLLM.compared)
    return "\n".join(
        [
            head,
            "## At a glance",
            "",
            "A row holds from its release on.",
            "",
            notices(),
            "",
            *_tables(),
            *_changes(),
            "## Releases",
            "",
            f"{', '.join(VLLM.names)}.",
            "",
        ]
    )


def notices() -> str:
    """Table of what a plugin author notices, by release."""
    first = VLLM.rows[0].release
    head = [
        "| vLLM | V1 interface | V2 interface | what a plugin author notices |",
        "|---|---|---|---|",
        f"| before {in_short(first)} | | | no logits processor plugins on the V1 engine |",
    ]
    return "\n".join(head + [_notice(row) for row in VLLM.rows if row.notice])


def _notice(row: Row) -> str:
    cells = ["" if VLLM.value(f"{runner}-members", row.release) == ABSENT else "yes " for runner in ("v1", "v2")]
    return f"| {in_short(row.release)} | {cells[0]}| {cells[1]}| {row.notice} |"


def _tables() -> Iterator[str]:
    for group in dict.fromkeys(fact.group for fact in VLLM.facts.values()):
        yield from (f"## {group}", "", "| | since | |", "|---|---|---|")
        for fact in VLLM.facts.values():
            if fact.group == group:
                yield from _spans(fact)
        yield ""


def _spans(fact: Fact) -> Iterator[str]:
    meaning = fact.meaning
    for release, value in fact.history:
        yield f"| {meaning} | {in_full(release)} | {shown(value)} |"
        meaning = ""


def _changes() -> Iterator[str]:
    """The facts that changed, by release, for upgrades."""
    yield from ("## What changed", "", "| release | |", "|---|---|")
    for row in VLLM.rows[1:]:
        groups: dict[str, list[str]] = {}
        for fact in VLLM.facts.values():
            if row.release in dict(fact.history):
                groups.setdefault(fact.group, []).append(fact.meaning)
        if groups:
            changed = [f"{group}: {'; '.join(meanings)}" for group, meanings in groups.items()]
            yield f"| {row.name} | {'. '.join(changed)} |"
    yield ""


def shown(value: str) -> str:
    """Signatures and names as code; of features, each with its condition on a line of its own."""
    if " when " in value:
        features = (feature.partition(" when ") for feature in value.split("; "))
        return "<br>".join(_what(what) + (f" when `{condition}`" if when else "") for what, when, condition in features)
    return f"`{value}`" if "_" in value or "(" in value else value


def _what(feature: str) -> str:
    return f"`{feature}`" if feature.endswith("()") else feature.replace("_", "\\_")
