"""The author's variables behind a row of NaN, and behind a row without a token."""

from __future__ import annotations

import ast
import linecache
import math
import re
from dataclasses import replace
from typing import Any

import torch

from lpkit_conformance.explanation import advice
from lpkit_conformance.instruments.author_lines import syntax_of
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.results import Finding

REDUCTION = re.compile(r"[\w.\[\]]+\.(?:mean|sum|std|var|amin|min|median)\([^()]*\)")
"""A call that makes one number of a row, and that -inf gets into."""


def with_nan(finding: Finding, notes: NoteEdits, masked: bool) -> Finding:
    """Return the finding with the line's values; ``masked``: also with what the -inf of masked tokens gets into."""
    values = {name: value for name, (value, _) in notes.spoilt_by.items() if not 0 < abs(value) < math.inf}
    sizes = {name: notes.spoilt_by[name][1] for name in values}
    name = min(sizes, key=lambda name: (not math.isinf(values[name]), sizes[name]), default="")
    held = advice.cause("value", "LP306")
    cause = " and ".join(held.format(name=name, value=f"{value:g}") for name, value in values.items())
    file, _, line = notes.spoilt.rpartition(":")
    number = int(line or 0)
    reduced = REDUCTION.findall(linecache.getline(file, number))
    operand = reduced[0].rpartition(".")[0] if len(reduced) == 1 else ""
    if name and math.isinf(values[name]) and sizes[name] < max(sizes.values()):
        reduced = [name]
    if not masked or len(reduced) != 1:
        return replace(finding, cause=cause, state=name)
    (name,) = reduced
    finding = replace(finding, location=_making(notes, name) or finding.location)
    before = "".join(linecache.getline(file, nth) for nth in range(_first_line(file, number), number))
    calls = [call for call in REDUCTION.findall(before) if operand and call.startswith(f"{operand}.")]
    names = "` and `".join(dict.fromkeys([*calls, name]))
    reason, fix = (text("reduced", "LP306").format(name=names) for text in (advice.cause, advice.fix))
    return replace(finding, cause="; ".join(filter(None, (cause, reason))), fix=fix, state=name)


def compared(finding: Finding, notes: NoteEdits) -> Finding:
    """Return the finding for a row that has no token because of NaN, at the line that makes what NaN comes of."""
    finding = with_nan(finding, notes, masked=False)
    cause = "; ".join(filter(None, (finding.cause, advice.cause("compared", "LP307"))))
    line = _making(notes, finding.state) or notes.spoilt
    return replace(finding, cause=cause, fix=advice.fix("compared", "LP307"), location=line)


def _making(notes: NoteEdits, name: str) -> str:
    """Return ``file:line`` that sets a variable, above the line that made NaN, in its function; empty without one."""
    file, _, line = notes.spoilt.rpartition(":")
    number = int(line or 0)
    before = {nth: linecache.getline(file, nth) for nth in range(_first_line(file, number), number)}
    made = [nth for nth, text in before.items() if name and text.lstrip().startswith(f"{name} = ")]
    return f"{file}:{made[-1]}" if made else ""


def _first_line(file: str, number: int) -> int:
    """Return the number of the first line of the function that a line is in; of a line in none, its own."""
    functions = [node for node in ast.walk(syntax_of(file)) if isinstance(node, ast.FunctionDef)]
    return max((node.lineno for node in functions if node.lineno <= number <= (node.end_lineno or 0)), default=number)


def emptied(notes: NoteEdits, vocab_size: int) -> tuple[str, str]:
    """Return the name of the mask, or of the empty container, that left a row no token, and what it holds; else empty
    texts."""
    nothing = advice.cause("empty", "LP307")
    masks = ((name, _of_all(value, vocab_size)) for name, value in notes.values.items())
    name, value = next((pair for pair in masks if pair[1]), ("", ""))
    if not name:
        empty = next((key for key, value in notes.values.items() if _holds_nothing(value) and _near(notes, key)), "")
        return (empty, nothing.format(name=empty)) if empty else ("", "")
    evidence = advice.cause("all", "LP307").format(name=name, value=value)
    empty = _empty(notes, name)
    return (empty, f"{nothing.format(name=empty)}, and {evidence}") if empty else (name, evidence)


def _holds_nothing(value: Any) -> bool:
    return isinstance(value, list | tuple | set | dict | torch.Tensor) and not (
        value.numel() if isinstance(value, torch.Tensor) else value
    )


def _near(notes: NoteEdits, name: str) -> bool:
    """Return True if the line that changed the row, or one of the two around it, reads a variable."""
    file, _, number = notes.edited.rpartition(":")
    texts = (linecache.getline(file, int(number or 0) + by) for by in (-1, 0, 1))
    return any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts)


def _empty(notes: NoteEdits, name: str) -> str:
    """Return the empty container by which the author fills a variable, in a line or a loop; empty without one."""
    nodes = [*ast.walk(syntax_of(notes.edited.rpartition(":")[0]))]
    fills = [node for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node).startswith(f"{name}[")]
    loops = [loop for loop in nodes if isinstance(loop, ast.For) and any(fill in ast.walk(loop) for fill in fills)]
    used = {ast.unparse(part) for whole in (*fills, *(loop.iter for loop in loops)) for part in ast.walk(whole)}
    containers = {key for key, value in notes.values.items() if isinstance(value, list | tuple | set | dict)}
    return next((key for key in notes.values if key in used & containers and not notes.values[key]), "")


def _of_all(mask: Any, vocab_size: int) -> str:
    """Return the value that a mask of the vocabulary has for all tokens of a row; empty if there is none."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape[-1:] != (vocab_size,):
        return ""
    return "True" if mask.all(-1).any() else "False" if not mask.any(-1).all() else ""
