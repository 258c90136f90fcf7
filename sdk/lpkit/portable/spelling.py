"""Refuses misspelt hooks and declarations of an author's class when the class is made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from lpkit._nearest import did_you_mean


def one_of(cls: type, name: str, allowed: Sequence[str]) -> None:
    """Refuse an unknown value of ``cls.name``, with the nearest allowed value.

    Raises:
        TypeError: the value is not in ``allowed``.
    """
    value = getattr(cls, name)
    if value in allowed:
        return
    hint = did_you_mean(str(value), allowed)
    wrong = f"{cls.__qualname__}.{name} must be one of {', '.join(allowed)}, not {value!r}"
    raise TypeError(f"{wrong}; {hint}" if hint else wrong)


def refuse_misspelt(cls: type, hooks: Mapping[str, Any]) -> None:
    """Refuse a misspelling of one of ``hooks`` (name -> example) that ``cls`` does not define.

    A class may have any helpers. So only a public name is refused that no base has, that is one typing slip away from
    the hook, and whose value could be the hook: the same number of arguments, or the same type.

    Raises:
        TypeError: a name looks like a misspelt hook; the message names the hook.
    """
    for name, value in vars(cls).items():
        if name.startswith("_") or any(name in vars(base) for base in cls.__mro__[1:]):
            continue
        for hook, example in hooks.items():
            if hook not in vars(cls) and one_slip(name.lower(), hook.lower()) and _alike(value, example):
                raise TypeError(f"{cls.__qualname__} defines {name!r}, which lpkit never calls; did you mean {hook!r}?")


def one_slip(name: str, other: str) -> bool:
    """True if the names differ by at most one letter added, missing or wrong, or by two swapped neighbours."""
    start = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
    left, right = name[start:], other[start:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    return swapped or left[1:] == right or left == right[1:] or left[1:] == right[1:]


def _alike(value: Any, example: Any) -> bool:
    if isinstance(example, type):
        return isinstance(value, type) and issubclass(value, example)
    arguments = _arguments(example)
    return isinstance(value, type(example)) if arguments is None else _arguments(value) == arguments


def _arguments(value: Any) -> int | None:
    """Count a method's arguments, ``self`` or ``cls`` included; None for anything else."""
    function = value.__func__ if isinstance(value, classmethod) else value
    return len(inspect.signature(function).parameters) if inspect.isfunction(function) else None
