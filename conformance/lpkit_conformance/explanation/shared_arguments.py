"""Whether a row goes wrong only beside a request with the same arguments: then something is shared by argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.subject import Subject


def same_arguments(
    subject: Subject, ops: Sequence[Op], request: str, passes: Callable[[Sequence[Op]], bool]
) -> tuple[str, ...]:
    """Names of the arguments that a request's only neighbour has, too, and without which its row is right.

    Empty unless all that happens is that two requests arrive and get tokens, and the row is right beside each of the
    case's relatives that does not have all of these values.
    """
    if not all(isinstance(op, Arrive | Step) for op in ops):
        return ()
    arrivals = {op.request: op for op in ops if isinstance(op, Arrive) and op.variant is not None and not op.twin_of}
    own = arrivals.pop(request, None)
    if own is None or len(arrivals) != 1:
        return ()
    (other,) = arrivals.values()
    values = [_arguments(case.fields) for case in subject.cases]
    of = [values[(arrived.variant or 0) % len(values)] for arrived in (own, other)]
    shared = of[0] & of[1]
    without = [nth for nth, given in enumerate(values) if shared - given]
    changed = ([replace(op, variant=nth) if op is other else op for op in ops] for nth in without)
    return tuple(sorted(name for name, _ in shared)) if without and all(map(passes, changed)) else ()


def _arguments(fields: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Names and values, ``extra_args`` taken apart."""
    given = {**fields, **(fields.get("extra_args") or {})}
    return {(name, repr(value)) for name, value in given.items() if name != "extra_args"}


def shared_by_argument(finding: Finding, names: Sequence[str], location: str) -> Finding:
    """The finding, if :func:`same_arguments` has given these names."""
    listed = ", ".join(f"`{name}`" for name in names)
    return replace(
        finding,
        cause=f"the row is right beside requests with other arguments, and wrong beside one with the same {listed}: "
        "something that is made for these values is shared, and changed",
        fix="do not change what requests with the same arguments share, such as a cached mask or callable: copy it "
        "before you change it, or make one for each request",
        location=location,
    )
