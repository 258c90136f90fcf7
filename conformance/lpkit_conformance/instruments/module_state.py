"""What a plugin's modules hold besides their code: caches, tables, counters. It can be put back to what it was."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from lpkit_conformance.instruments.author_lines import is_authors

CONTAINERS = (dict, list, set)


class ModuleState:
    """The module-level and class-level state of a class's own modules, as it is now.

    Args:
        cls: the class; its package's modules count, and those of the author's base classes and of what they name (the
            class that a bridge wraps).
    """

    def __init__(self, cls: Any) -> None:
        self._names: list[tuple[Any, dict[str, Any]]] = []
        self._contents: list[tuple[Any, Any]] = []
        for owner in owners(cls):
            found = dict(vars(owner))
            self._names.append((owner, found))
            for name, value in found.items():
                if type(value) in CONTAINERS and not name.startswith("__"):
                    self._contents.append((value, value.copy()))

    @classmethod
    def of(cls, plugin: Any) -> ModuleState:
        """The state before the first use of a class in this process that asked for it."""
        name = f"{getattr(plugin, '__module__', '')}.{getattr(plugin, '__qualname__', id(plugin))}"
        known = _known.get(name)
        if known is None or known[0] is not plugin:
            known = _known[name] = plugin, cls(plugin)
        return known[1]

    def restore(self) -> None:
        """Put names and the contents of containers back, and empty what ``functools`` caches."""
        for owner, names in self._names:
            for name in [name for name in vars(owner) if name not in names]:
                delattr(owner, name)
            for name, value in names.items():
                if vars(owner)[name] is not value:
                    setattr(owner, name, value)
                if inspect.getattr_static(value, "cache_clear", None) is not None:  # functools.cache
                    value.cache_clear()
        for container, contents in self._contents:
            if not _same(container, contents):
                container.clear()
                (container.extend if isinstance(container, list) else container.update)(contents)


_known: dict[str, tuple[Any, ModuleState]] = {}


def _same(one: Any, other: Any) -> bool:
    """Whether both hold the very same objects; tensors cannot be compared."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(value is other[key] for key, value in one.items())
    if isinstance(one, set):
        return bool(one == other)
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def owners(cls: Any) -> Iterator[Any]:
    """The author's modules, and the classes that they define."""
    used = set(_modules_used(cls))
    package = str(getattr(cls, "__module__", "")).partition(".")[0]
    names = [name for name in list(sys.modules) if name in used or name.partition(".")[0] == package]
    for name in names:
        module = sys.modules[name]
        if isinstance(module, ModuleType) and is_authors(getattr(module, "__file__", None) or "<none>"):
            yield module
            yield from (
                value for value in list(vars(module).values()) if isinstance(value, type) and value.__module__ == name
            )


def _modules_used(cls: Any) -> Iterator[str]:
    """Where the classes are that it derives from or, as a bridge does, names; those of a named one, too."""
    for base in getattr(cls, "__mro__", ()):
        yield base.__module__
        for value in vars(base).values():
            if isinstance(value, type):
                yield from (named.__module__ for named in value.__mro__)
