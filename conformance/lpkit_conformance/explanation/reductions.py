"""Calls in the author's statements that make one value of all rows, such as a maximum over the batch."""

from __future__ import annotations

import ast
import re
from functools import cache
from types import FrameType
from typing import Final

import numpy as np
import torch

from lpkit_conformance.instruments.author_lines import only_looks, syntax_of

WHOLE: Final = re.compile("all|any|mean|median|norm|prod|std|sum|var|logsumexp|(arg|a?)(max|min)")
"""Methods that reduce everything unless they get a dimension."""

ALONG: Final = re.compile("argsort|sort|topk|cum(max|prod|sum)|(log_)?softmax")
"""Methods that need a dimension to mix rows."""

LIBRARIES: Final = ("torch", "F", "np", "numpy", "functional")


def over_rows(frame: FrameType, rows: int) -> str:
    """Return the call of a function's current statement that makes one value of all ``rows``; empty without one."""
    for call, *texts in _mixing(frame.f_code.co_filename, frame.f_lineno):
        try:
            value, index = (eval(text, frame.f_globals, frame.f_locals) if text else None for text in texts)
        except Exception:  # a name that the statement itself sets
            value = index = None
        flattened = getattr(index, "dtype", None) in (torch.bool, np.bool_) and getattr(index, "ndim", 0) > 1
        ndim = getattr(value, "ndim", 2)
        if ndim > 1 or flattened or (value is not None and ndim == 1 and len(value) == rows):
            return call
    return ""


@cache
def _mixing(file: str, line: int) -> list[tuple[str, str, str]]:
    """Return calls that reduce the first dimension, and if they can be evaluated, the texts of what they reduce, and of
    the index that chooses it."""
    mixing = []
    statements = [
        node
        for node in ast.walk(syntax_of(file))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    for call in [node for statement in statements[-1:] for node in ast.walk(statement) if isinstance(node, ast.Call)]:
        operand, rest = _operand(call)
        if operand is not None and _first_dimension(call, rest):
            looks = isinstance(operand, ast.Name | ast.Attribute | ast.Subscript) and only_looks(operand)
            index = ast.unparse(operand.slice) if looks and isinstance(operand, ast.Subscript) else ""
            mixing.append((ast.unparse(call), ast.unparse(operand) if looks else "", index))
    return mixing


def _operand(call: ast.Call) -> tuple[ast.expr | None, list[ast.expr]]:
    """Return what a call reduces, and its other arguments."""
    if isinstance(call.func, ast.Attribute) and (WHOLE.fullmatch(call.func.attr) or ALONG.fullmatch(call.func.attr)):
        if ast.unparse(call.func.value).rpartition(".")[2] not in LIBRARIES:
            return call.func.value, call.args
        return (call.args[0], call.args[1:]) if call.args else (None, [])
    if isinstance(call.func, ast.Name) and call.func.id in ("max", "min", "sum") and len(call.args) == 1:
        return call.args[0], []
    return None, []


def _first_dimension(call: ast.Call, rest: list[ast.expr]) -> bool:
    named = [item.value for item in call.keywords if item.arg in ("dim", "axis")]
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = named or rest[method == "topk" :]
    if not given:
        return not ALONG.fullmatch(method)
    return isinstance(given[0], ast.Constant) and given[0].value == 0
