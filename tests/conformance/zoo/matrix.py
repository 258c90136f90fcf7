"""docs/evidence/detection-matrix.md: which check says what about which defect, as :mod:`zoo.verdicts` holds it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from lpkit_conformance.catalogue import all_checks

import zoo
from zoo import verdicts
from zoo.registry import Defect

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "detection-matrix.md"
STYLES = {
    "v1": "Raw V1",
    "v2": "Raw V2",
    "portable": "Portable (`lpkit.LogitsProcessor`)",
    "adapter": "Request-level (`lpkit.AdapterLogitsProcessor`)",
    "packaging": "Packaging",
}

Outcome = dict[str, set[str]]
"""Code -> statuses over the hosts."""


def outcomes(held: dict[str, verdicts.Verdicts]) -> dict[str, Outcome]:
    """What every check says about every defect, by the defect's id; without the checks that passed."""
    found: dict[str, Outcome] = {}
    for item in (*zoo.DEFECTS, *zoo.MISSED):
        outcome: defaultdict[str, set[str]] = defaultdict(set)
        for status, labels in held[item.id].items():
            for label in labels.split() if status != verdicts.SHRUNK else ():
                outcome[label.partition("[")[0]].add(status)
        found[item.id] = dict(outcome)
    return found


def page() -> str:
    """The page as Markdown."""
    checks = all_checks()
    held = {identity: known for style in verdicts.STYLES for identity, known in verdicts.held(style).items()}
    found = outcomes(held)
    lines = [
        "<!-- Written by tests/conformance/zoo (make matrix); edit the specimens there instead. -->",
        "# What the checks detect",
        "",
        f"The suite's own tests hold {len(zoo.DEFECTS)} small processors with one planted defect each, and "
        f"{len(zoo.CORRECT)} correct ones that look odd. Each defect must be caught by the check named first; no check "
        "may fail a correct one. The defects are ours, and therefore biased: the mutation tests are the other half.",
        "",
        "With 20 seeds each, 93 correct ones were checked 1,860 times, without LP604 and LP606, in which the seed "
        "decides little or nothing (2026-11-22, 143,000 results). Three were blamed once, by LP808 with seed 15, for "
        "one reason: the host let the bounds alone show "
        "drafts to a class that was told of no speculative decoding. It is told now.",
        "",
        "None was blamed by LP604 (four seeds each), by the watcher (20 seeds, 2,380 batches, 104,076 "
        "rows), or by `--together` (each reference plugin beside the next one, and three correct pairs, 20 seeds, "
        "420 runs; 2026-11-23).",
        "",
        "| style | defects | caught by the named check | correct processors |",
        "| --- | --- | --- | --- |",
    ]
    for style, label in STYLES.items():
        own = [item for item in zoo.DEFECTS if item.style == style]
        caught = sum(bool(found[item.id].get(item.code, set()) & {"failed", "advice"}) for item in own)
        right = sum(item.style.split("+")[0] == style for item in zoo.CORRECT)
        lines.append(f"| {label} | {len(own)} | {caught} | {right} |")
    lines += ["", *_per_cause(found)]
    lines += ["", "## How small failures get", "", *_shrinking(found, held)]
    lines += ["", "## Defect by defect", "", "Advice is in italics. Blocked checks are not listed.", ""]
    for style, label in STYLES.items():
        lines += [f"### {label}", "", "| defect | caught by | also by |", "| --- | --- | --- |"]
        lines += [_row(item, found[item.id]) for item in zoo.DEFECTS if item.style == style]
        lines.append("")
    if zoo.MISSED:
        lines += ["## Not detected", "", "| defect | why |", "| --- | --- |"]
        lines += [f"| `{item.name}`: {item.what} | {item.missed} |" for item in zoo.MISSED]
        lines.append("")
    lines += [
        "## Check by check",
        "",
        "| check | planted for it | of those caught | defects it reports in all | it alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for check in checks:
        planted = [item for item in zoo.DEFECTS if item.code == check.code]
        reports = [item for item in zoo.DEFECTS if check.code in _reporting(found[item.id])]
        alone = [item for item in reports if _reporting(found[item.id], core=True) == [check.code]]
        caught = sum(item in reports for item in planted)
        lines.append(
            f"| [{check.code}](../checks/{check.code}.md) {check.name} | {len(planted)} | {caught} | {len(reports)} | "
            f"{len(alone)} |"
        )
    return "\n".join([*lines, ""])


def _shrinking(found: Iterable[str], held: dict[str, verdicts.Verdicts]) -> list[str]:
    pairs = [pair.split(":") for identity in found for pair in held[identity].get(verdicts.SHRUNK, "").split()]
    lines = [
        f"Every failure of a generated program is made smaller before it is reported; {len(pairs)} were:",
        "",
        "| | median | 90th percentile | worst |",
        "| --- | --- | --- | --- |",
    ]
    for name, ranked in (
        ("operations before", sorted(int(before) for before, _ in pairs)),
        ("operations after", sorted(int(after) for _, after in pairs)),
    ):
        cells = (statistics.median(ranked), ranked[len(ranked) * 9 // 10], ranked[-1])
        lines.append(f"| {name} | {' | '.join(f'{cell:.3g}' for cell in cells)} |")
    return lines


def _per_cause(found: dict[str, Outcome]) -> list[str]:
    """How many failures a reader sees of one defect; a finding on both hosts counts once, advice does not count."""
    tiers = {check.code: check.tier for check in all_checks()}
    counts = [len(_reporting(found[item.id], core=True)) for item in zoo.DEFECTS if tiers[item.code] == "core"]
    return [
        f"One defect should be one failure. Of the {len(counts)} defects that fail a check, {counts.count(1)} are "
        f"reported once: the median is {statistics.median(counts):g}, the mean "
        f"{statistics.mean(counts):.2f}, the most {max(counts)}."
    ]


def _reporting(outcome: Outcome, core: bool = False) -> list[str]:
    """Codes of the checks that say something against the plugin; ``core``: without advice."""
    bad = {"failed"} if core else {"failed", "advice"}
    return sorted(code for code, statuses in outcome.items() if statuses & bad)


def _row(defect: Defect, outcome: Outcome) -> str:
    others = (code for code in _reporting(outcome) if code != defect.code)
    return f"| `{defect.name}`: {defect.what} | {_link(defect.code, outcome)} | {_links(others, outcome)} |"


def _links(codes: Iterable[str], outcome: Outcome) -> str:
    return " ".join(_link(code, outcome) for code in codes)


def _link(code: str, outcome: Outcome) -> str:
    link = f"[{code}](../checks/{code}.md)"
    return link if "failed" in outcome.get(code, ()) else f"*{link}*"
