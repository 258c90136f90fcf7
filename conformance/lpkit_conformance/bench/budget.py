"""Compares a bench with an older one by ratios and counts, which do not depend on the machine's speed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lpkit_conformance.bench.results import SCHEMA, Bench, CandidateResult
from lpkit_conformance.errors import UsageError

SLACK = 0.25
"""A ratio may be larger by this share: it differs that much from run to run on a busy machine."""

SETTINGS = ("device", "threads", "context", "share")
"""Settings that must be equal, in addition to target, case and size."""


class OlderBench:
    """Numbers that a later bench must not exceed, from a file of ``lpkit bench --json``. Raises UsageError."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"--budget {file}: {error.strerror}", f"write it: lpkit bench --json {file}") from None
        except ValueError as error:
            raise UsageError(f"--budget {file} is not JSON: {error}") from None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise UsageError(f"--budget {file} is not a bench ({SCHEMA})", f"write it: lpkit bench --json {file}")
        self.settings: Mapping[str, Any] = document["settings"]
        self._sides = {
            (target["target"], side["name"], point["batch"], point["vocab"]): {**side, "case": target["case"]}
            for target in document["targets"]
            for point in target["points"]
            for side in point["sides"]
            if side["kind"] == "target" and side["apply"]
        }

    def compare(self, bench: Bench, slack: float = SLACK) -> tuple[str, ...]:
        """Return a sentence for each number that got worse.

        Raises:
            UsageError: the two were measured differently, or have nothing in common.
        """
        for name in SETTINGS:
            old, new = self.settings.get(name), bench.settings[name]
            if old != new:
                problem = f"{self.file} was measured with {name} {old}, this is measured with {new}"
                raise UsageError(problem, "measure with the same options, or write it again")
        worse, compared = [], 0
        for target in bench.targets:
            for point in target.points:
                for side in point.sides:
                    old = self._sides.get((target.target, side.name, point.batch, point.vocab))
                    if old is None or side.apply is None:
                        continue
                    if old["case"] != target.case:
                        problem = f"{self.file} was measured with the case {old['case']}, not {target.case}"
                        raise UsageError(problem, "give that --case, or write it again")
                    compared += 1
                    where = f"{side.name}, {point.batch} x {point.vocab:,}"
                    worse += [f"{where}: {what}" for what in _worse(old, side, slack)]
        if not compared and any(target.measured for target in bench.targets):
            problem = f"{self.file} has none of the sizes and targets that were measured"
            raise UsageError(problem, "give its --batch and --vocab, or write it again")
        return tuple(worse)


def _worse(old: Mapping[str, Any], side: CandidateResult, slack: float) -> Iterator[str]:
    was, now = old["versus_floor"], side.versus_floor
    if was and now and now > was * (1 + slack):
        yield f"apply takes {now:.2f} times one read and write of the logits; it took {was:.2f}"
    counted = {
        "operations": "operations",
        "launches": "launches on a GPU",
        "peak": "bytes of new memory at the same time",
    }
    for name, what in counted.items():
        before, after = old.get(name), getattr(side, name)
        if before is not None and after is not None and after > before:
            yield f"{after:,} {what}; there were {before:,}"
    waits = sum(side.syncs.values()) - sum(old["syncs"].values())
    if waits > 0:
        yield f"{waits} more waits for the device"
