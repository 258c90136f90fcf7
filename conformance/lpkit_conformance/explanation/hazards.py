"""The hazards that a failing program still holds once it is shrunk, and the advice that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.vllm_api.runners import V2

Hazard = Literal[
    "drafts",
    "swap",
    "twins",
    "resume",
    "prefill",
    "idle",
    "empty",
    "full",
    "many",
    "long",
    "replace",
    "move",
    "remove",
    "short",
    "company",
    "alone",
]
"""From the special to the general; each is a key of the fixes."""

CHANGES: Final[frozenset[Hazard]] = frozenset({"replace", "move", "remove", "swap"})
"""After which a row or slot is another request's."""

SHORT = Arrive.prompt_len - 1
"""So few tokens are less than a rule may want to see. A program has them only if its failure needs them."""

MANY, LONG = 8, 40
"""More requests at a time, and more tokens, than the programs for other hazards have."""


def fix_for(held: set[Hazard], meant: Hazard | None, readers: Sequence[str]) -> str:
    """Return the fix for the hazard that a program is ``meant`` for while it holds it, else for the most special one.

    Empty if several changes of the batch are left, any of which may be at fault.

    Args:
        held: the hazards of the program.
        readers: groups of fixes, the first choice first.
    """
    meant = None if meant == "company" and held & CHANGES else meant  # company alone does not show it
    if meant not in held and len(held & {"resume", *CHANGES}) > 2:
        return ""
    return fix(meant if meant in held else next(name for name in get_args(Hazard) if name in held), *readers)


def fix_for_exception(
    ops: Sequence[Op], held: set[Hazard], meant: Hazard | None, method: str, odd: bool, later: bool
) -> str:
    """Return the fix for an exception of a method, by the least that it needs.

    Args:
        odd: it needs odd arguments.
        later: a request that has output meets it, too.
    """
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    if all(op.variant is None for op in arrivals):
        return fix("stranger" if held.isdisjoint({"empty", *CHANGES}) else "stranger leaves", "entry")
    first = sum(op.count for op in ops if isinstance(op, Step)) == 1
    if len(arrivals) == 1 and held == {"alone"} and (first or odd):
        return fix("admitted" if method != "apply" or odd else "always" if later else "first", "entry")
    return fix_for(held, meant, ("raised",))


def hazards(ops: Sequence[Op], interface: str, max_num_seqs: int) -> set[Hazard]:
    """Return the hazards of these operations; always ``alone`` or ``company``."""
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    steps = sum(op.count for op in ops if isinstance(op, Step))
    holds: dict[Hazard, bool] = {
        "company": len(arrivals) > 1,
        "alone": len(arrivals) <= 1,
        "drafts": any(isinstance(op, Speculate) for op in ops),
        "swap": any(isinstance(op, Swap) for op in ops),
        "idle": any(isinstance(op, Idle) for op in ops),
        "resume": any(isinstance(op, Resume) for op in ops),
        "twins": any(op.twin_of for op in arrivals),
        "prefill": any(op.chunks for op in arrivals),
        "short": any(op.prompt_len <= SHORT for op in arrivals),
        "long": steps > LONG or any(op.prompt_len > LONG for op in arrivals),
    }
    return {name for name, held in holds.items() if held} | set(_changes(ops, interface, max_num_seqs))


def without(ops: Sequence[Op]) -> dict[Hazard, list[Op]]:
    """Return the operations without a hazard, for each that can be taken out alone."""
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    taken: dict[Hazard, list[Op]] = {}
    if any(isinstance(op, Idle) for op in ops):
        taken["idle"] = [Step() if isinstance(op, Idle) else op for op in ops]
    if any(op.chunks for op in arrivals):
        taken["prefill"] = [replace(op, chunks=0) if isinstance(op, Arrive) else op for op in ops]
    return taken


def _changes(ops: Sequence[Op], interface: str, max_num_seqs: int) -> Iterator[Hazard]:
    """Yield what becomes of rows and slots."""
    rows: list[str] = []
    left: list[str] = []
    entered: list[str] = []
    anyone_left = False
    for op in ops:
        if isinstance(op, Arrive | Resume):
            entered.append(op.request)
        elif isinstance(op, Finish | Preempt):
            if op.request in entered:
                entered.remove(op.request)
            else:
                left.append(op.request)
        elif isinstance(op, Step | Idle | Speculate):
            gone = sorted(rows.index(name) for name in left if name in rows)
            if entered and (gone or (interface == V2 and anyone_left)):
                yield "replace"
            anyone_left |= bool(gone)
            rows, moved = _settled(rows, gone, entered)
            if len(gone) > len(entered):
                if moved or interface == V2:
                    yield "move"
                if not moved or interface == V2 or len(gone) - len(entered) > 1:
                    yield "remove"
            if not rows:
                yield "empty"
            if len(rows) == max_num_seqs:
                yield "full"
            if len(rows) > MANY:
                yield "many"
            left, entered = [], []


def _settled(rows: list[str], gone: list[int], entered: list[str]) -> tuple[list[str], bool]:
    """Return the rows after an update, and True if a request moved into the gap of another: V1's order."""
    after: list[str | None] = [None if row in gone else name for row, name in enumerate(rows)]
    coming = list(entered)
    for row in gone:
        if coming:
            after[row] = coming.pop(0)
    after += coming
    moved = False
    while None in after:
        last = after.pop()
        if last is not None:
            after[after.index(None)] = last
            moved = True
    return [name for name in after if name is not None], moved
