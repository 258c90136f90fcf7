"""Finds out which of vLLM's interfaces a class has, and explains what it lacks."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, Literal, TypeAlias

from lpkit.interfaces import lookup
from lpkit.loading.imports import WrongInterfaceError, describe

Runner: TypeAlias = Literal["v1", "v2"]

_BASES: Final[dict[Runner, tuple[str, ...]]] = {
    "v1": ("lpkit.v1", lookup.V1_MODULE),
    "v2": ("lpkit.v2", lookup.V2_MODULE),
}


def interfaces_of(cls: object) -> frozenset[Runner]:
    """Return the vLLM interfaces that a class subclasses; imports nothing. An object that is no class has none.

    A class that subclasses an interface has already loaded the interface's module, so only loaded modules count.
    """
    if not isinstance(cls, type):
        return frozenset()
    interfaces: set[Runner] = set()
    for runner, modules in _BASES.items():
        for name in modules:
            base = getattr(sys.modules.get(name), "LogitsProcessor", None)
            if isinstance(base, type) and issubclass(cls, base):
                interfaces.add(runner)
    return frozenset(interfaces)


def checked(obj: Any, label: str) -> type[Any]:
    """Return ``obj`` if it is a class with at least one of the interfaces.

    Raises:
        WrongInterfaceError: ``obj`` is something else.
    """
    if not isinstance(obj, type):
        what, remedy = describe(obj), "vLLM constructs the processor itself, so name a class"
        if interfaces_of(type(obj)):
            remedy = f"Name its class: {name_of(type(obj))}"
        raise WrongInterfaceError(f"{label} is {what}, not a class", remedy)
    if not interfaces_of(obj):
        namesake = next((base for base in obj.__mro__[1:] if base.__name__ == "LogitsProcessor"), None)
        other = f" (its base {name_of(namesake)} is something else)" if namesake else ""
        raise WrongInterfaceError(
            f"{label} derives from neither of vLLM's logits processor interfaces{other}",
            "Derive it from lpkit.LogitsProcessor, which runs on both runners",
        )
    return obj


def name_of(cls: type[Any]) -> str:
    """Return ``module:Class``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def prepare() -> None:
    """Import the interfaces, and with them vLLM, while CUDA is still visible, as in a running engine."""
    importlib.import_module("lpkit.v1")
    importlib.import_module("lpkit.v2")
