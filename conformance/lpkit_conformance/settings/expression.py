"""``-k``: which checks a user means, by parts of their codes and names, with ``and``, ``or``, ``not`` and brackets."""

from __future__ import annotations

import re
from collections.abc import Callable

from lpkit_conformance.errors import UsageError

Matches = Callable[[str], bool]

_TOKEN = re.compile(r"\s*(?:([()])|([^\s()]+))")


def expression(text: str) -> Matches:
    """Return True if the expression selects a check, by its code and name in one text.

    Raises:
        UsageError: for an expression that does not parse.
    """
    tokens = [first or second for first, second in _TOKEN.findall(text)]
    found = _any(tokens, text)
    if tokens:
        raise _wrong(text, f"unexpected {tokens[0]!r}")
    return found


def _any(tokens: list[str], text: str) -> Matches:
    parts = [_all(tokens, text)]
    while tokens[:1] == ["or"]:
        tokens.pop(0)
        parts.append(_all(tokens, text))
    return lambda label: any(part(label) for part in parts)


def _all(tokens: list[str], text: str) -> Matches:
    parts = [_one(tokens, text)]
    while tokens[:1] == ["and"]:
        tokens.pop(0)
        parts.append(_one(tokens, text))
    return lambda label: all(part(label) for part in parts)


def _one(tokens: list[str], text: str) -> Matches:
    if not tokens:
        raise _wrong(text, "it ends too early")
    token = tokens.pop(0)
    if token == "not":
        inner = _one(tokens, text)
        return lambda label: not inner(label)
    if token == "(":
        inner = _any(tokens, text)
        if tokens[:1] != [")"]:
            raise _wrong(text, "a bracket is not closed")
        tokens.pop(0)
        return inner
    if token in (")", "and", "or"):
        raise _wrong(text, f"unexpected {token!r}")
    return lambda label: token.lower() in label.lower()


def _wrong(text: str, problem: str) -> UsageError:
    return UsageError(f"-k {text!r}: {problem}; example: -k 'swap or (LP5 and not drafts)'")
