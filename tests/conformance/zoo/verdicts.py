"""Judges all specimens by all checks: prints the figures of docs/evidence/detection-matrix.md, and surprises."""

from __future__ import annotations

import logging
import os
import statistics
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple
from unittest import mock

import torch
from lpkit_conformance.programs import shrink

import zoo


class Verdict(NamedTuple):
    """Codes of failed checks and of advice; operations of each failing program before and after shrinking."""

    failed: set[str]
    advised: set[str]
    sizes: list[tuple[int, int]]


def judge(identity: str) -> Verdict:
    """The verdict of all checks on a specimen."""
    torch.set_num_threads(1)
    logging.getLogger().addHandler(logging.NullHandler())  # keeps what a specimen logs off the terminal
    verdict = Verdict(set(), set(), [])
    make_small = shrink.shrink

    def noted(ops: list[Any], *rest: Any) -> Any:
        small, outcome = make_small(ops, *rest)
        verdict.sizes.append((len(ops), len(small)))
        return small, outcome

    with mock.patch.object(shrink, "shrink", noted):
        for result in zoo.run_all(zoo.specimen(identity)):
            if result.status in ("failed", "error"):
                verdict.failed.add(result.code)
            elif result.status == "advice":
                verdict.advised.add(result.code)
    return verdict


def surprises(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Verdicts that the specimens do not announce."""
    for item in zoo.CORRECT:
        if codes := verdicts[item.id].failed:
            yield f"{item.id} is correct, and fails {' '.join(sorted(codes))}"
    for item in zoo.DEFECTS:
        failed, advised, _ = verdicts[item.id]
        if not {item.code, *item.also} & (failed | advised):
            yield f"{item.id} is not caught by {item.code}"
        if codes := failed - {item.code, *item.also}:
            yield f"{item.id} fails not only {item.code}, but {' '.join(sorted(codes))}, too"


def figures(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """The lines of the detection matrix."""
    for style in ("v1", "v2", "portable", "adapter", "packaging"):
        defects = [item for item in zoo.DEFECTS if item.style == style]
        caught = sum(item.code in verdicts[item.id].failed | verdicts[item.id].advised for item in defects)
        correct = sum(item.style.split("+")[0] == style for item in zoo.CORRECT)
        yield f"{style}: {len(defects)} defects, {caught} caught by the named check; {correct} correct"
    counts = [len(verdict.failed) for verdict in verdicts.values() if verdict.failed]
    yield (
        f"{len(counts)} defects fail a check, {counts.count(1)} of them one; "
        f"mean {statistics.mean(counts):.2f}, most {max(counts)}"
    )
    sizes = [pair for verdict in verdicts.values() for pair in verdict.sizes]
    for when, ranked in zip(("before", "after"), map(sorted, zip(*sizes, strict=True)), strict=True):
        cells = (statistics.median(ranked), ranked[len(ranked) * 9 // 10], ranked[-1])
        yield f"{len(ranked)} programs, operations {when} shrinking: median, 90th percentile, most: {cells}"


def main() -> None:
    ids = [item.id for item in zoo.specimens()]
    # A process for each: a defect may spoil what is shared, for itself and for the next.
    forks = get_context("forkserver")
    forks.set_forkserver_preload(["zoo"])
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), forks, max_tasks_per_child=1) as pool:
        verdicts = dict(zip(ids, pool.map(judge, ids), strict=True))
    print(*figures(verdicts), *surprises(verdicts), sep="\n")


if __name__ == "__main__":
    main()
