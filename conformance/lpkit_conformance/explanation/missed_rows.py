"""Edits that land in another request's row; conditions and lines that a single row decides for all rows."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.expectation.solo import solo_runs
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.row_values import CLOSE
from lpkit_conformance.hosts import Observation
from lpkit_conformance.instruments.author_lines import parsed, syntax_of
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.subject import Subject

_COUNTS = re.compile(r"\b(arange|range|enumerate)\(")


class Displaced(NamedTuple):
    """An edit in a row that is not its own: the request that it belongs to, and that request's row."""

    request: str
    row: int


def deciding_line(place: str) -> str:
    """Return ``file:line`` of the condition around a ``return`` without a value; else the line itself."""
    file, _, number = place.rpartition(":")
    if advice.text_at(place).strip() != "return":
        return place
    tests = [
        node.lineno
        for node in ast.walk(syntax_of(file))
        if isinstance(node, ast.If) and any(part.lineno == int(number) for part in node.body)
    ]
    return f"{file}:{tests[-1]}" if tests else place


def displaced(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> Displaced | None:
    """Return the request whose edit the row got while its own row went without; None if there is none."""
    solo = solo_runs(subject)
    with subject.as_imported():
        host = make_host(subject, max_num_seqs)
        seen = next((seen for seen in host.run(ops) if seen.shows(mismatch.step, mismatch.request)), None)
    if seen is None:
        return None
    solo.prepare(host.pool.requests)
    for row, item in enumerate(seen.rows):
        right = None if item.request == mismatch.request else solo.expected(item.request, item.position)
        if right is None or torch.equal(right, seen.after[row]):
            continue
        if _same_edit(seen, mismatch.row, seen.before[row], right):
            return Displaced(item.request, row)
    return None


def _same_edit(seen: Observation, row: int, before: torch.Tensor, after: torch.Tensor) -> bool:
    """Return True if a row was edited as ``before`` is by ``after``: the same amounts, factors or masks."""
    here, there = (seen.before[row], seen.after[row]), (before, after)
    changed = here[0] != here[1]
    if not bool(changed.any()) or not torch.equal(changed, there[0] != there[1]):
        return False
    (old, new), (other, right) = ((part[changed] for part in pair) for pair in (here, there))
    if bool(new.isinf().any()) or bool(right.isinf().any()):
        return torch.equal(new.isinf(), right.isinf())
    close = (torch.isclose(new - old, right - other, atol=CLOSE), torch.isclose(new / old, right / other, rtol=CLOSE))
    return any(bool(part.all()) for part in close)


def counting_line(place: str) -> tuple[str, str]:
    """Return ``file:line`` and the variable of counted rows that the line ``file:line`` writes to; else empty."""
    file, _, number = place.rpartition(":")
    with contextlib.suppress(SyntaxError, ValueError):
        indices = [node.slice for node in ast.walk(parsed(file, int(number))) if isinstance(node, ast.Subscript)]
        names = {node.id for index in indices for node in ast.walk(index) if isinstance(node, ast.Name)}
        for node in ast.walk(syntax_of(file)):
            if isinstance(node, ast.Assign | ast.For) and node.lineno <= int(number):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                value = ast.unparse(node.value if isinstance(node, ast.Assign) else node.iter)
                counted = [part.id for part in ast.walk(target) if isinstance(part, ast.Name) and part.id in names]
                if counted and _COUNTS.search(value):
                    return f"{file}:{node.lineno}", counted[0]
    return place, ""
