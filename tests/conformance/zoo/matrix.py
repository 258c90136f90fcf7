"""Writes docs/evidence/detection-matrix.md: which check says what about which defect.

``make matrix`` runs it.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lpkit_conformance.catalogue import all_checks
from lpkit_conformance.oracle import shrink

import zoo
from zoo.registry import Defect

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "detection-matrix.md"
STYLES = {
    "v1": "Raw V1",
    "v2": "Raw V2",
    "portable": "Portable (`lpkit.LogitsProcessor`)",
    "adapter": "Request-level (`lpkit.AdapterLogitsProcessor`)",
    "packaging": "Packaging",
}

SHRINKING = "## How small failures get"

Outcome = dict[str, set[str]]
"""Code -> statuses over the hosts."""


@dataclass(frozen=True)
class Shrunk:
    """How one failure became small."""

    before: int
    after: int
    seconds: float


def outcomes() -> dict[str, tuple[Outcome, list[Shrunk]]]:
    """What every check says about every defect, and how its failures shrank, by the defect's id."""
    ids = [item.id for item in (*zoo.DEFECTS, *zoo.MISSED)]
    # Processes of their own: a defect may spoil what is shared.
    with ProcessPoolExecutor(os.cpu_count(), get_context("forkserver")) as pool:
        return dict(zip(ids, pool.map(_outcome, ids), strict=True))


def _outcome(identity: str) -> tuple[Outcome, list[Shrunk]]:
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    found: defaultdict[str, set[str]] = defaultdict(set)
    defect = next(item for item in (*zoo.DEFECTS, *zoo.MISSED) if item.id == identity)
    shrunk: list[Shrunk] = []
    make_small = shrink.shrink

    def timed(ops: list[Any], *rest: Any) -> Any:
        begun = time.perf_counter()
        small, outcome = make_small(ops, *rest)
        shrunk.append(Shrunk(len(ops), len(small), time.perf_counter() - begun))
        return small, outcome

    with mock.patch.object(shrink, "shrink", timed):
        for result in zoo.run_all(defect):
            found[result.code].add(result.status)
    return dict(found), shrunk


def page(measured: dict[str, tuple[Outcome, list[Shrunk]]]) -> str:
    """The page as Markdown."""
    checks = all_checks()
    found = {identity: outcome for identity, (outcome, _) in measured.items()}
    lines = [
        "<!-- Written by tests/conformance/zoo/matrix.py (make matrix); edit the zoo instead. -->",
        "# What the checks detect",
        "",
        f"The suite's own tests hold {len(zoo.DEFECTS)} small processors with one planted defect each, and "
        f"{len(zoo.CORRECT)} correct ones that look odd. Each defect must be caught by the check named first; no check "
        "may fail a correct one. The defects are ours, and therefore biased: the mutation tests are the other half.",
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
    lines += ["", SHRINKING, "", *_shrinking([item for _, shrunk in measured.values() for item in shrunk])]
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


def without_times(text: str) -> str:
    """The page without what differs from run to run."""
    head, _, rest = text.partition(SHRINKING)
    return head + rest[rest.index("## ") :]


def _shrinking(shrunk: list[Shrunk]) -> list[str]:
    rows = {
        "operations before": [item.before for item in shrunk],
        "operations after": [item.after for item in shrunk],
        "seconds": [item.seconds for item in shrunk],
    }
    lines = [
        f"Every failure of a generated program is made smaller before it is reported; {len(shrunk)} were:",
        "",
        "| | median | 90th percentile | worst |",
        "| --- | --- | --- | --- |",
    ]
    for name, values in rows.items():
        ranked = sorted(values)
        cells = (statistics.median(ranked), ranked[len(ranked) * 9 // 10], ranked[-1])
        lines.append(f"| {name} | {' | '.join(f'{cell:.3g}' for cell in cells)} |")
    return lines


def _per_cause(found: dict[str, Outcome]) -> list[str]:
    """How many failures a reader sees of one defect; a finding on both hosts counts once, advice does not count."""
    tiers = {check.code: check.tier for check in all_checks()}
    counts = [len(_reporting(found[item.id], core=True)) for item in zoo.DEFECTS if tiers[item.code] == "core"]
    return [
        f"One defect should be one failure. Of the {len(counts)} defects that fail a check, {counts.count(1)} are "
        f"reported once; the median is {statistics.median(counts):g} failures, the mean "
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


if __name__ == "__main__":
    PAGE.write_text(page(outcomes()), encoding="utf-8")
