"""Results made of the logits that nothing reads: copies that are changed, or values that are not kept."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from lpkit_conformance.instruments.author_lines import syntax_of
from lpkit_conformance.instruments.dispatch import Watch
from lpkit_conformance.instruments.edits import author_frames


class NoteDropped(Watch):  # type: ignore[no-untyped-call]
    """Looks for the author's first statement that computes numbers for the vocabulary which nothing reads.

    Args:
        logits: of one call of ``apply``.

    Attributes:
        line: ``file:line`` of the statement; empty if there is none.
        holder: the variable that has the numbers, or the expression that makes their tensor.
    """

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._logits = logits
        self.line = self.holder = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        apart = not self.line and any(map(self._is_apart, tree_leaves(result)))
        for frame in author_frames() if apart else ():
            function, statement = _place(frame)
            if function and statement and not isinstance(statement, ast.Return):  # else the caller has the numbers
                self.holder = _unread(frame, function, statement, func._schema.is_mutable)
                self.line = f"{frame.f_code.co_filename}:{frame.f_lineno}" if self.holder else ""
                break
        return result

    def _is_apart(self, value: Any) -> bool:
        """Return True for numbers for the vocabulary in memory of their own."""
        width = self._logits.shape[-1:]
        floats = isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape[-1:] == width
        return floats and _memory(value) != _memory(self._logits)


COPYING = ("aten::index", "aten::gather", "aten::index_select", "aten::masked_select", "aten::take")
"""Operations that copy some elements."""


class NoteUnwritten(Watch):  # type: ignore[no-untyped-call]
    """Looks for copies of some logits that the author changes in place, and that nothing reads after the change.

    Args:
        logits: of one call of ``apply``.

    Attributes:
        changed: the variable or the expression, and ``file:line``, of each such change, by the memory of the copy.
    """

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._copies = {logits.untyped_storage().data_ptr(): logits}  # kept, so that nothing else gets their memory
        self._logits = next(iter(self._copies))
        self.changed: dict[int, tuple[str, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [_memory(item) for item in tree_leaves((args, kwargs or {}))]
        if func._schema.name in COPYING and given[0] in self._copies:
            self._copies[_memory(result)] = result
        for nth, memory in enumerate(given):
            if nth or memory != _memory(result):
                self.changed.pop(memory, None)
        if func._schema.is_mutable and given[0] in self._copies.keys() - {self._logits}:
            frame = next(author_frames(), None)
            function, statement = _place(frame) if frame else (None, None)
            if frame and function and statement and not isinstance(statement, ast.Return):
                holder = _unread(frame, function, statement, in_place=True)
                if holder and holder not in [parameter.arg for parameter in function.args.args]:  # the caller has it
                    self.changed[given[0]] = holder, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return result


def _memory(value: Any) -> int:
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


def _place(frame: FrameType) -> tuple[ast.FunctionDef | None, ast.stmt | None]:
    """Return the function and the simple statement that a frame is in."""
    nodes = [node for node in ast.walk(syntax_of(frame.f_code.co_filename)) if isinstance(node, ast.stmt)]
    inside = [node for node in nodes if node.lineno <= frame.f_lineno <= (node.end_lineno or 0)]
    functions = [node for node in inside if isinstance(node, ast.FunctionDef)]
    return (functions[-1], inside[-1]) if functions and not hasattr(inside[-1], "body") else (None, None)


def _unread(frame: FrameType, function: ast.FunctionDef, statement: ast.stmt, in_place: bool) -> str:
    """Return what holds the numbers that an operation of a statement computes if nothing reads it; else empty."""
    held = _written(statement)
    root, call = held, getattr(statement, "value", None)
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
        root = root.func if isinstance(root, ast.Call) else root.value
    owner = frame.f_locals.get(root.id, frame.f_globals.get(root.id)) if isinstance(root, ast.Name) else None
    if not (owner is torch or isinstance(owner, torch.Tensor) or (owner is None and isinstance(statement, ast.Assign))):
        return ""
    if isinstance(statement, ast.Expr) and isinstance(call, ast.Call) and not ast.unparse(call.func).endswith("_"):
        return ast.unparse(statement)
    if not isinstance(held, ast.Name):
        return "" if isinstance(held, ast.Attribute) else ast.unparse(held or statement)
    if in_place and isinstance(statement, ast.Assign) and statement.targets[0] is held:
        return ""  # another name of what it changes
    receivers = {id(_written(part)) for part in ast.walk(function) if isinstance(part, ast.stmt)}
    named = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == held.id]
    named = [node for node in named if isinstance(node.ctx, ast.Store) or id(node) not in receivers]
    named.sort(key=lambda node: (node.lineno, isinstance(node.ctx, ast.Store)))
    first, last = statement.lineno, statement.end_lineno or 0
    stored = any(isinstance(node.ctx, ast.Store) and node.lineno <= first for node in named)
    read = any(isinstance(node.ctx, ast.Load) and node.lineno > last for node in named)
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.While) and loop.lineno < first <= (loop.end_lineno or 0):
            again = [node for node in named if loop.lineno <= node.lineno <= (loop.end_lineno or 0)]
            read |= bool(again) and isinstance(again[0].ctx, ast.Load)
    return held.id if stored and not read else ""


def _written(statement: ast.stmt) -> ast.expr | None:
    """Return what a statement sets or changes in place: a name, or the owner of an item or of a method."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return getattr(statement.value.func, "value", None)
    targets = [statement.target] if isinstance(statement, ast.AugAssign) else getattr(statement, "targets", [None])
    target = targets[0]
    return target.value if isinstance(target, ast.Subscript) else target
