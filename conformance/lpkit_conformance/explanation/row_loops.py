"""Loops over the rows of a batch in an author's code."""

from __future__ import annotations

import ast
from functools import cache
from types import FrameType
from typing import NamedTuple

from lpkit_conformance.instruments.author_lines import syntax_of


class RowLoop(NamedTuple):
    """A round of a loop over rows: True if it is that of the request's row, if it begins, and if it has yet to."""

    is_requests: bool
    begins: bool
    at_head: bool


def row_loop(frame: FrameType, row: int, rows: int) -> RowLoop | None:
    """Return the round of the innermost loop over rows that a function is in; None if it is in none."""
    line, values = frame.f_lineno, frame.f_locals
    for loop, held, variable in reversed(_row_loops(frame.f_code.co_filename)):
        inside = loop.lineno <= line <= (loop.end_lineno or 0)
        if inside and getattr(values.get(held), "ndim", 0) == 2 and len(values[held]) == rows:
            at_head = line == loop.lineno
            return RowLoop(not at_head and values.get(variable) == row, line == loop.body[0].lineno, at_head)
    return None


@cache
def _row_loops(file: str) -> list[tuple[ast.For, str, str]]:
    """Return the loops that index something by a variable of theirs, with both names."""
    loops = [node for node in ast.walk(syntax_of(file)) if isinstance(node, ast.For)]
    indexing = []
    for loop in loops:
        variables = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        for node in ast.walk(loop):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
                if isinstance(first, ast.Name) and first.id in variables:
                    indexing.append((loop, node.value.id, first.id))
    return indexing
