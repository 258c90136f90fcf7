"""Features that a runner does not support, with their conditions, from the functions of ``VllmConfig`` that
collect them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from vllm_canary.source import called


def collected(function: ast.FunctionDef) -> str:
    """``feature when condition; ...`` in the order of the source, "?" among them for code that is not recognised."""
    return "; ".join(_collected(function.body, ())) or "nothing"


def _collected(body: Sequence[ast.stmt], conditions: tuple[ast.expr, ...]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _collected(node.body, (*conditions, node.test))
            yield from _collected(node.orelse, (*conditions, ast.UnaryOp(ast.Not(), node.test)))
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.List):
            yield from (_written(item, conditions) for item in node.value.elts)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _adds(node.value):
            yield from (_written(item, conditions) for item in node.value.args)
        elif not _adds_nothing(node):
            yield "?"


def _adds(call: ast.Call) -> bool:
    """A text to the list, or what another function collects."""
    item = call.args[0] if len(call.args) == 1 else None
    text = isinstance(item, ast.JoinedStr) or (isinstance(item, ast.Constant) and isinstance(item.value, str))
    return (called(call) == "append" and text) or (called(call) == "extend" and isinstance(item, ast.Call))


def _adds_nothing(node: ast.stmt) -> bool:
    """The docstring, the empty list, a shorter name for a part of the configuration, or the ``return`` of the list."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return isinstance(node.value, ast.Attribute) or (isinstance(node.value, ast.List) and not node.value.elts)
    if isinstance(node, ast.Return):
        return isinstance(node.value, ast.Name)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _written(item: ast.expr, conditions: tuple[ast.expr, ...]) -> str:
    """One feature; what another function collects by that function's name."""
    terms = [term for test in conditions for term in _terms(test)]
    telling = [term for term in terms if not _is_guard(term, terms)]
    condition = ast.BoolOp(ast.And(), telling) if len(telling) > 1 else next(iter(telling), None)
    return _short(_text(item) + (f" when {ast.unparse(condition)}" if condition is not None else ""))


def _text(item: ast.expr) -> str:
    if isinstance(item, ast.JoinedStr):
        return "".join(map(_text, item.values))
    if isinstance(item, ast.FormattedValue):
        return f"{{{ast.unparse(item.value)}}}"
    return str(item.value) if isinstance(item, ast.Constant) else ast.unparse(item)


def _terms(test: ast.expr) -> Iterator[ast.expr]:
    """Return the terms that must be true together."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for term in test.values:
            yield from _terms(term)
    else:
        yield test


def _is_guard(term: ast.expr, terms: Sequence[ast.expr]) -> bool:
    """Return True for ``x_config`` or ``x_config is not None`` if another term accesses ``x_config``."""
    match = re.fullmatch(r"([\w.]+_config)(?: is not None)?", ast.unparse(term))
    others = [ast.unparse(other) for other in terms if other is not term]
    return match is not None and any(re.search(rf"\b{match[1]}\b", other) for other in others)


def _short(code: str) -> str:
    """Without the objects in which attributes are looked up."""
    return re.sub(r"\b(?:self|envs|\w+_config)\.(?=\w)", "", code)
