"""Facts: results about a subject, computed once. A fact is the same for every check that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Protocol, TypeVar


class Memo:
    """The facts learned so far, by the function that computes each. Only :func:`fact` writes here."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Callable[..., Any], Any] = {}


class Knowable(Protocol):
    """Anything that facts are learned of."""

    @property
    def memo(self) -> Memo: ...

    def as_imported(self) -> AbstractContextManager[None]:
        """Surroundings in which no earlier run has left a trace."""


Source = TypeVar("Source", bound=Knowable)
Value = TypeVar("Value")


def fact(compute: Callable[[Source], Value]) -> Callable[[Source], Value]:
    """Make a function of a subject a fact: computed on demand, once, with the plugin's modules as imported.

    All checks share its result: frozen data, or a cache whose answers do not depend on earlier questions.
    """

    @wraps(compute)
    def learned(source: Source) -> Value:
        values = source.memo._values
        if compute not in values:
            with source.as_imported():
                values[compute] = compute(source)
        value: Value = values[compute]
        return value

    return learned
