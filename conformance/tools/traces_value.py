"""What does each recorded trace catch that the others do not? Writes docs/evidence/traces-value.md.

    make traces-value

Every planted defect of the zoo is put on every trace of its runners, without any generated program.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import signal
from collections import defaultdict
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import zoo
from lpkit_conformance import traces
from lpkit_conformance.catalogue import by_code
from lpkit_conformance.checks.lp2_mixtures import LP220
from lpkit_conformance.hosts import PluginError, parts_of
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.compare import compare
from lpkit_conformance.oracle.verify import solo_runs
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.traces.patterns import PATTERNS

SECONDS = 20
KEPT = """\
Traces that add nothing by themselves are kept for realism, as they cost a few milliseconds each: they are what an
engine really sent for aborts, churn, chunked prefills and preemption, so the proof that
the programs imagine nothing."""
BARRIERS = ("LP001", "LP101")
"""Checks without whose pass no trace can be played at all."""

Catch = dict[str, set[str]]
"""Defect -> ``trace/pattern`` that catch it."""


class Late(Exception):
    """A trace takes too long."""


def late(*_: Any) -> None:
    raise Late


def catches(subject: PluginUnderTest, trace: traces.Trace, pattern: str) -> bool:
    """Whether one trace in one pattern shows that something is wrong."""
    solo = solo_runs(subject)
    try:
        host = parts_of(subject.host).recorded(subject, trace, pattern)
        seen = list(host.run())
        solo.prepare(host.requests)
    except PluginError:
        return True
    return any(compare(item, solo) is not None for item in seen)


def measure(specimen: Any) -> set[str]:
    """``trace/pattern`` names that catch a defect."""
    found: set[str] = set()
    with specimen.surroundings():
        session = Session(specimen.id, specimen.target, Plan(cases=specimen.cases))
        for host in session.hosts:
            subjects = session.subjects(host)
            for code in BARRIERS:
                if session.compute(by_code()[code], host).status != "passed":
                    return found
            for name in traces.names(host):
                trace = traces.load(name)
                for pattern in PATTERNS:
                    signal.setitimer(signal.ITIMER_PROF, SECONDS)
                    try:
                        if any(catches(subject, trace, pattern) for subject in subjects):
                            found.add(f"{name}/{pattern}")
                    except Late:
                        found.add(f"{name}/{pattern}")
                    finally:
                        signal.setitimer(signal.ITIMER_PROF, 0)
    return found


def cover(caught: Catch, columns: list[str]) -> list[tuple[str, int]]:
    """Greedy: the fewest columns that together catch all that any catches, and what each adds."""
    left = {defect for defect, found in caught.items() if found}
    chosen: list[tuple[str, int]] = []
    while left:
        best = max(columns, key=lambda column: sum(column in caught[defect] for defect in left))
        gained = {defect for defect in left if best in caught[defect]}
        if not gained:
            break
        chosen.append((best, len(gained)))
        left -= gained
    return chosen


def render(caught: Catch, named: dict[str, str]) -> str:
    """The page."""
    by_trace: Catch = {defect: {item.partition("/")[0] for item in found} for defect, found in caught.items()}
    by_pattern: Catch = {defect: {item.partition("/")[2] for item in found} for defect, found in caught.items()}
    any_trace = [defect for defect, found in caught.items() if found]
    ladder = [defect for defect in caught if named[defect][:3] in ("LP2", "LP8") and named[defect] != LP220.code]
    kinds = f"{len([item for item in ladder if caught[item]])} of {len(ladder)}"
    lines = [
        "<!-- Written by conformance/tools/traces_value.py; edit that instead. -->",
        "",
        "# What the recorded traces add",
        "",
        "The generated programs of `lpkit check` are our idea of an engine; "
        "the [traces](../explanation/traces.md) are an engine.",
        "This page tells what the traces catch by themselves: every planted defect of the zoo on every trace of its",
        "runners, each with all, no, alternating and mixed requests using the plugin, and no generated program.",
        "",
        f"Measured on {date.today().isoformat()}, Python {platform.python_version()}, "
        f"torch {version('torch').split('+')[0]}: `make traces-value`.",
        "",
        f"{len(any_trace)} of {len(caught)} defects are caught by a trace, {kinds} of those whose own check is one of "
        "bookkeeping (LP2) or of V2's rows (LP8).",
        "Most of the others break rules that no batch shows: packaging, arguments, cost, masks.",
        "",
        "| trace | steps | requests | catches | only this one | without it, the runner's others miss |",
        "|---|---|---|---|---|---|",
    ]
    for name in traces.names():
        trace = traces.load(name)
        mine = {defect for defect, found in by_trace.items() if name in found}
        rivals = {other for other in traces.names(trace.runner) if other != name}
        alone = {defect for defect in mine if by_trace[defect] == {name}}
        lost = {defect for defect in mine if not by_trace[defect] & rivals}
        steps = len(trace.v1_steps) + len(trace.v2_steps)
        shown = ", ".join(f"`{item}`" for item in sorted(lost)) or "nothing"
        lines.append(f"| {name} | {steps} | {len(trace.requests)} | {len(mine)} | {len(alone)} | {shown} |")
    lines += ["", KEPT]
    for runner in ("v1", "v2"):
        columns = list(traces.names(runner))
        own = {defect: found & set(columns) for defect, found in by_trace.items()}
        steps_text = ", ".join(f"{name} (+{n})" for name, n in cover(own, columns))
        lines += ["", f"Fewest {runner.upper()} traces that catch what all of them do: {steps_text or 'none'}."]
    patterns = ", ".join(f"{name} {sum(name in found for found in by_pattern.values())}" for name in PATTERNS)
    cheapest = ", ".join(f"{name} (+{n})" for name, n in cover(by_pattern, list(PATTERNS)))
    lines += ["", f"By pattern of use: {patterns}. Fewest patterns: {cheapest}.", "", "## Matrix", ""]
    columns = list(traces.names())
    lines += [f"| defect | check | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for defect in sorted(caught, key=lambda item: (named[item], item)):
        if caught[defect]:
            marks = ["x" if name in by_trace[defect] else "" for name in columns]
            lines.append(f"| `{defect}` | {named[defect]} | {' | '.join(marks)} |")
    missing = [f"`{defect}` ({named[defect]})" for defect in sorted(caught) if not caught[defect]]
    lines += ["", "## Caught by no trace", "", ", ".join(missing) + ".", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the page")
    parser.add_argument("--data", type=Path, help="keep the measurements, and go on from them")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, late)
    caught: Catch = defaultdict(set)
    if options.data and options.data.exists():
        caught.update({name: set(found) for name, found in json.loads(options.data.read_text()).items()})
    for specimen in zoo.DEFECTS:
        if specimen.id not in caught:
            caught[specimen.id] = measure(specimen)
            print(f"{specimen.code} {specimen.id}: {len(caught[specimen.id])}", flush=True)
            if options.data:
                options.data.write_text(json.dumps({name: sorted(found) for name, found in caught.items()}))
    text = render(dict(caught), {item.id: item.code for item in zoo.DEFECTS})
    if options.page:
        options.page.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
