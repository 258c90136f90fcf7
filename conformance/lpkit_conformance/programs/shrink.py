"""Makes a failing program small: delta debugging over its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from lpkit_conformance.programs.generate import Arrive, Op, Resume, Speculate, Step

BUDGET = 50_000
"""Operations in all programs that are tried. Not a time: one seed gives the same program on every machine."""

SIMPLIFY_BUDGET = 2_000

_DEFAULTS: dict[str, Any] = {"chunks": 0, "twin_of": None, "prompt_len": Arrive.prompt_len, "greedy": False}
PLAIN: dict[type[Op], tuple[dict[str, Any], ...]] = {
    Arrive: (_DEFAULTS, *({name: value} for name, value in _DEFAULTS.items())),
    Resume: ({"new_list": False},),
    Speculate: ({},),
}
"""Simpler settings to try for an operation: all defaults together, then each default alone."""


def shrink(ops: list[Op], outcome: Any, fails: Callable[[Sequence[Op]], Any]) -> tuple[list[Op], Any]:
    """Delta debugging: drop operations while the failure stays, largest pieces first."""
    budget = BUDGET
    size = max(len(ops) // 2, 1)
    while True:
        start = 0
        shrunk = False
        while start < len(ops) and budget > 0:
            candidate = ops[:start] + ops[start + size :]
            budget -= len(candidate)
            failure = fails(candidate) if candidate else None
            if failure is not None:
                ops, outcome, shrunk = candidate, failure, True
            else:
                start += size
        if budget <= 0 or (size == 1 and not shrunk):
            return ops, outcome
        if not shrunk:
            size = max(size // 2, 1)


def simplify(ops: list[Op], outcome: Any, fails: Callable[[Sequence[Op]], Any]) -> tuple[list[Op], Any]:
    """Take from each operation what the failure does not need: what stays is what it takes."""
    budget = SIMPLIFY_BUDGET
    for place in range(len(ops)):
        for plain in PLAIN.get(type(ops[place]), ()):
            simpler = Step() if isinstance(ops[place], Speculate) else replace(ops[place], **plain)  # type: ignore[type-var]
            if simpler == ops[place] or budget <= 0:
                continue
            candidate = [*ops[:place], simpler, *ops[place + 1 :]]
            budget -= len(candidate)
            failure = fails(candidate)
            if failure is not None:
                ops, outcome = candidate, failure
    return ops, outcome


def single_steps(ops: Iterable[Op]) -> list[Op]:
    """``step x3`` as three steps, so that shrinking can drop some of them."""
    return [
        Step() if isinstance(op, Step) else op for op in ops for _ in range(op.count if isinstance(op, Step) else 1)
    ]


def joined_steps(ops: Iterable[Op]) -> list[Op]:
    """Neighbouring steps as one operation."""
    joined: list[Op] = []
    for op in ops:
        if joined and isinstance(op, Step) and isinstance(joined[-1], Step):
            joined[-1] = Step(joined[-1].count + op.count)
        else:
            joined.append(op)
    return joined
