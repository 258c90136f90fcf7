"""The verdicts of all checks on all specimens: ``tests/contracts/golden/verdicts.txt``, a line per specimen.

``v1-AddsLast: failed LP206[v1]; advice LP004; skipped LP403; shrunk 13:6`` names the checks that did not pass, and the
operations of its failing programs before and after shrinking. Blocked checks follow from the failed ones.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lpkit_conformance.programs import shrink

import zoo

FILE = Path(__file__).parents[2] / "contracts" / "golden" / "verdicts.txt"
STATUSES = ("failed", "error", "advice", "skipped")


def held() -> dict[str, str]:
    """The verdicts in the file, by the specimen's id."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {identity: verdicts.strip() for identity, _, verdicts in (line.partition(":") for line in lines)}


def parts(verdicts: str) -> dict[str, list[str]]:
    """Labels of the checks by status; below ``shrunk``, the sizes of programs."""
    return {words[0]: words[1:] for words in (part.split() for part in verdicts.split("; ") if part)}


def judged(ids: Iterable[str]) -> dict[str, str]:
    """The verdicts on these specimens today."""
    ids = list(ids)
    # Processes of their own: a defect may spoil what is shared.
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), get_context("forkserver")) as pool:
        return dict(zip(ids, pool.map(_judged, ids), strict=True))


def _judged(identity: str) -> str:
    torch.set_num_threads(1)
    logging.getLogger().addHandler(logging.NullHandler())  # keeps what a specimen logs off the terminal
    shrunk: list[str] = []
    make_small = shrink.shrink

    def noted(ops: list[Any], *rest: Any) -> Any:
        small, outcome = make_small(ops, *rest)
        shrunk.append(f"{len(ops)}:{len(small)}")
        return small, outcome

    labels: dict[str, list[str]] = {}
    with mock.patch.object(shrink, "shrink", noted):
        for result in zoo.run_all(zoo.specimen(identity)):
            labels.setdefault(result.status, []).append(result.label)
    listed = [(status, sorted(labels[status])) for status in STATUSES if status in labels]
    if shrunk:
        listed.append(("shrunk", shrunk))
    return "; ".join(" ".join([status, *items]) for status, items in listed)


def write(again: Iterable[str] = ()) -> None:
    """Judge the specimens without a line and those in ``again``; drop the lines of specimens that are gone."""
    again = set(again)
    verdicts = {identity: line for identity, line in held().items() if identity not in again}
    ids = sorted(item.id for item in zoo.specimens())
    verdicts |= judged(identity for identity in ids if identity not in verdicts)
    FILE.write_text("".join(f"{identity}: {verdicts[identity]}".rstrip() + "\n" for identity in ids), encoding="utf-8")


def figures() -> str:
    """The figures of docs/evidence/detection-matrix.md."""
    verdicts = {identity: parts(line) for identity, line in held().items()}
    lines = []
    for style in ("v1", "v2", "portable", "adapter", "packaging"):
        defects = [item for item in zoo.DEFECTS if item.style == style and item.id in verdicts]
        caught = sum(item.code in _codes(verdicts[item.id], "failed", "advice") for item in defects)
        correct = sum(item.style.split("+")[0] == style for item in zoo.CORRECT)
        lines.append(f"{style}: {len(defects)} defects, {caught} caught by the named check; {correct} correct")
    failures = [len(_codes(found, "failed")) for found in verdicts.values() if "failed" in found]
    lines.append(
        f"{len(failures)} defects fail a check, {failures.count(1)} of them one; "
        f"mean {statistics.mean(failures):.2f}, most {max(failures)}"
    )
    sizes = [pair.split(":") for found in verdicts.values() for pair in found.get("shrunk", ())]
    for name, ranked in (
        ("before", sorted(int(before) for before, _ in sizes)),
        ("after", sorted(int(after) for _, after in sizes)),
    ):
        cells = (statistics.median(ranked), ranked[len(ranked) * 9 // 10], ranked[-1])
        lines.append(f"{len(ranked)} programs, operations {name} shrinking: median, 90th percentile, most: {cells}")
    return "\n".join(lines)


def _codes(found: dict[str, list[str]], *statuses: str) -> set[str]:
    return {label.partition("[")[0] for status in statuses for label in found.get(status, ())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", nargs="*", default=[], metavar="ID", help="specimens to judge again; 'all' for all")
    again = parser.parse_args().again
    write([item.id for item in zoo.specimens()] if again == ["all"] else again)
    print(figures())


if __name__ == "__main__":
    main()
