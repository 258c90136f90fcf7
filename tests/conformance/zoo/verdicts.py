"""What every check says about every specimen, in files: the contract's tests compare them, the page is made of them."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lpkit_conformance.oracle import shrink

import zoo

FOLDER = Path(__file__).parents[2] / "contracts" / "golden"
STYLES = ("adapter", "packaging", "portable", "v1", "v2")
SHRUNK = "operations before and after"

Verdicts = dict[str, str]
"""Labels of the checks by status, without those that passed; and how small its failing programs became."""


def everything() -> list[zoo.Specimen]:
    """All specimens."""
    return [*zoo.CORRECT, *zoo.DEFECTS, *zoo.MISSED]


def of_style(style: str) -> list[str]:
    """The ids of a file's specimens, in its order."""
    return sorted(item.id for item in everything() if item.id.startswith((f"{style}-", f"{style}+")))


def held(style: str) -> dict[str, Verdicts]:
    """What a file holds."""
    found: dict[str, Verdicts] = json.loads((FOLDER / f"verdicts-{style}.json").read_text(encoding="utf-8"))
    return found


def judged(ids: Iterable[str]) -> dict[str, Verdicts]:
    """The verdicts on these specimens."""
    ids = list(ids)
    # Processes of their own: a defect may spoil what is shared.
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), get_context("forkserver")) as pool:
        return dict(zip(ids, pool.map(_judged, ids), strict=True))


def _judged(identity: str) -> Verdicts:
    torch.set_num_threads(1)
    logging.getLogger().addHandler(logging.NullHandler())  # said, and printed nowhere
    specimen = next(item for item in everything() if item.id == identity)
    shrunk: list[str] = []
    make_small = shrink.shrink

    def noted(ops: list[Any], *rest: Any) -> Any:
        small, outcome = make_small(ops, *rest)
        shrunk.append(f"{len(ops)}:{len(small)}")
        return small, outcome

    found: dict[str, list[str]] = {}
    with mock.patch.object(shrink, "shrink", noted):
        for result in zoo.run_all(specimen):
            found.setdefault(result.status, []).append(result.label)
    verdicts = {status: " ".join(sorted(labels)) for status, labels in sorted(found.items()) if status != "passed"}
    return {**verdicts, SHRUNK: " ".join(shrunk)} if shrunk else verdicts


def write(again: Iterable[str] = ()) -> None:
    """Bring the files up to date: new specimens are judged, and those of these ids again; those that are gone go."""
    again = set(again)
    for style in STYLES:
        old = {identity: verdicts for identity, verdicts in held(style).items() if identity not in again}
        ids = of_style(style)
        new = judged(identity for identity in ids if identity not in old)
        known = {**old, **new}
        found = {identity: known[identity] for identity in ids}
        (FOLDER / f"verdicts-{style}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    from zoo import matrix

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", nargs="*", default=[], metavar="ID", help="specimens to judge anew; 'all' for all")
    again = parser.parse_args().again
    write([item.id for item in everything()] if again == ["all"] else again)
    matrix.PAGE.write_text(matrix.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
