"""What an exception says about the line that raised it: its likely cause and what to change, where either is known."""

from __future__ import annotations

import re
from typing import NamedTuple

GENERAL_FIX = "check what the method assumes about rows and arguments"
"""For an exception that a check met by the way."""


class Reading(NamedTuple):
    """Attributes: cause, fix: empty where the exception does not tell."""

    cause: str = ""
    fix: str = ""


_MISSING = Reading(
    "the instance has no such attribute: it is misspelt, or read before it is set",
    "correct the name, or set the attribute in `__init__`",
)
_OTHER_TYPE = Reading("a value has another type or form than the line expects, or a call has other arguments")
_NONE = Reading(
    "a value is None that the line expects to be there, such as `extra_args`, a prompt's token ids, or a field of the "
    "configuration"
)

_BY_TYPE: dict[str, Reading] = {
    "NameError": Reading("a name is not defined where this line uses it", "define or import the name"),
    "UnboundLocalError": Reading("a variable is read on a path on which it was not set", "set it on every path"),
    "ImportError": Reading("what the line imports is not installed here", "install it, or declare it as a dependency"),
    "NotImplementedError": Reading("the method is not implemented", "implement it"),
    "KeyError": Reading(
        "the line looks up what is not there: state of a row or request that was not stored or is gone, or an argument "
        "that the request does not have"
    ),
    "IndexError": Reading(
        "an index lies beyond the end: a row that no longer exists, a token id outside the vocabulary, or too small a "
        "buffer"
    ),
    "ZeroDivisionError": Reading("the line divides by a number that can be 0, such as a count or a length"),
    "AssertionError": Reading("an assertion does not hold that the plugin, or what it calls, makes"),
    "RecursionError": Reading("a method calls itself without end", "end the recursion"),
}
_BY_TYPE["ModuleNotFoundError"] = _BY_TYPE["ImportError"]


def read(kind: str, text: str, owner: str) -> Reading:
    """What is known of an exception of the type ``kind`` with this text; ``owner`` is the plugin's class."""
    if kind in ("AttributeError", "TypeError") and "NoneType" in text:
        return _NONE
    if kind == "AttributeError" and re.search(rf"'{re.escape(owner)}' object has no attribute", text):
        return _MISSING
    if kind in ("AttributeError", "TypeError"):
        return _OTHER_TYPE
    return _BY_TYPE.get(kind, Reading())
