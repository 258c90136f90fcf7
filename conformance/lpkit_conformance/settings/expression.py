"""``-k``: which checks a user means, by parts of their codes and names, with ``and``, ``or``, ``not`` and brackets."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from lpkit_conformance.errors import UsageError

_WORD = re.compile(r"[^\s()]+")
_OPERATORS = frozenset({"and", "or", "not"})
_GRAMMAR = (ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Name, ast.Load)


def expression(text: str) -> Callable[[str], bool]:
    """Return True if the expression selects a check, by its code and name in one text.

    Raises:
        UsageError: for an expression that does not parse.
    """
    words = [word.lower() for word in _WORD.findall(text) if word not in _OPERATORS]
    names = iter(range(len(words)))
    source = _WORD.sub(lambda word: word[0] if word[0] in _OPERATORS else f"_{next(names)}", " ".join(text.split()))
    example = "example: -k 'swap or (LP5 and not drafts)'"
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError:  # Python's own words differ between its versions
        raise UsageError(f"-k {text!r}: a word or a bracket is missing; {example}") from None
    if not all(isinstance(node, _GRAMMAR) for node in ast.walk(tree)):  # two words that nothing joins
        raise UsageError(f"-k {text!r}: and, or and not join words; {example}")
    return lambda label: _holds(tree, words, label.lower())


def _holds(node: ast.expr, words: Sequence[str], label: str) -> bool:
    if isinstance(node, ast.BoolOp):
        quantified = all if isinstance(node.op, ast.And) else any
        return quantified(_holds(part, words, label) for part in node.values)
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand, words, label)
    assert isinstance(node, ast.Name)
    return words[int(node.id[1:])] in label
