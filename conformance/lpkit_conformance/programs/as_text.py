"""A program as text: one line per operation, or one line for a run of similar operations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Resume

FEWEST = 4
"""Fewest similar operations in a row that share a line."""

MOST_NAMES = 6

VERBS: dict[type[Op], str] = {Arrive: "arrive", Finish: "finish", Preempt: "are preempted", Resume: "resume"}
ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def collapse(ops: Sequence[Op]) -> tuple[str, ...]:
    """The lines; ``r0..r69 arrive, every third without the plugin`` stands for 70 of them."""
    lines: list[str] = []
    for kind, group in groupby(ops, _kind):
        run = list(group)
        verb = VERBS.get(kind[0])
        if verb and not kind[1] and len(run) >= FEWEST:
            lines.append(f"{_names([op.request for op in run])} {verb}{_usage(run)}{_greedy(run)}")  # type: ignore[attr-defined]
        else:
            lines += _counted([str(op) for op in run])
    return tuple(lines)


def _kind(op: Op) -> tuple[type[Op], bool]:
    """Return the operation's type, and True if it has a special feature and needs its own line."""
    special = isinstance(op, Arrive) and (op.chunks > 0 or op.twin_of is not None)
    return type(op), special or (isinstance(op, Resume) and op.new_list)


def _counted(lines: Sequence[str]) -> Iterator[str]:
    for line, group in groupby(lines):
        count = len(list(group))
        yield f"{line} ({count} times)" if count > 1 else line


def _names(names: Sequence[str]) -> str:
    """``r0..r69``, ``r0, r3 and r7``, or ``r0, r3 .. r99 (34 requests)``."""
    parts = [re.fullmatch(r"(\D*)(\d+)", name) for name in names]
    if len({part[1] if part else None for part in parts}) == 1 and parts[0]:
        numbers = [int(part[2]) for part in parts if part]
        if numbers == list(range(numbers[0], numbers[0] + len(names))):
            return f"{names[0]}..{names[-1]}"
    if len(names) <= MOST_NAMES:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{names[0]}, {names[1]} .. {names[-1]} ({len(names)} requests)"


def _usage(run: Sequence[Op]) -> str:
    """Name the arrivals that do not use the plugin."""
    plain = [index for index, op in enumerate(run) if isinstance(op, Arrive) and op.variant is None]
    if not plain:
        return ""
    if len(plain) == len(run):
        return " without the plugin"
    gaps = {later - earlier for earlier, later in pairwise(plain)}
    period = gaps.pop() if len(gaps) == 1 else 0
    if period in ORDINALS and plain[0] < period and plain[-1] + period >= len(run):
        return f", every {ORDINALS[period]} without the plugin"
    return f", {len(plain)} of them without the plugin"


def _greedy(run: Sequence[Op]) -> str:
    """Count the arrivals that sample greedily."""
    count = sum(isinstance(op, Arrive) and op.greedy for op in run)
    if not count:
        return ""
    return ", greedy" if count == len(run) else f", {count} of them greedy"
