"""Watching the tensor operations of a plugin."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is never compiled; torch would otherwise import its compiler on first use (2 s)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _NoSymbol:
    """A type without instances."""


def _itself(value: Any, *_: Any, **__: Any) -> Any:
    """Return ``value``: the function is not compiled, and sizes and conditions are not symbolic."""
    return value


def _equal(first: Any, second: Any) -> bool:
    """Compare two sizes, or two lists of sizes."""
    return list(first) == list(second) if isinstance(first, list | tuple) else first == second


SHAPES = "torch.fx.experimental.symbolic_shapes"

ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "torch._dynamo": {"disable": _itself},
    SHAPES: {
        "expect_true": _itself,
        "guard_or_false": _itself,
        "guard_or_true": _itself,
        "guard_size_oblivious": _itself,
        "guarding_hint_or_throw": _itself,
        "has_guarding_hint": lambda _: True,
        "is_nested_int": lambda _: False,
        "statically_known_true": _itself,
        "sym_and": lambda *conditions: all(conditions),
        "sym_eq": _equal,
        "sym_or": lambda *conditions: any(conditions),
    },
    "sympy": {"Basic": _NoSymbol},
}
"""The compiler modules that torch's operations on the meta device import, and the functions that they use."""


class _Instead(ModuleType):
    """Answers what torch's operations ask of a module; for anything else there is the module itself."""

    def __getattr__(self, name: str) -> Any:
        module = self.__name__
        if name in ANSWERS[module]:
            return ANSWERS[module][name]
        if (module, name) == (SHAPES, "__path__"):  # every import from a module asks whether it is a package
            raise AttributeError(name)
        if sys.modules.get(module) is self:
            del sys.modules[module]
        return getattr(importlib.import_module(module), name)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch's operations on the meta device from importing the compiler, which takes a second."""
    instead = {name: _Instead(name) for name in ANSWERS if name not in sys.modules}
    sys.modules.update(instead)
    try:
        yield
    finally:
        for name, module in instead.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
