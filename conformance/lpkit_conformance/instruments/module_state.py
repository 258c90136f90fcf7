"""State of a plugin's modules: caches, tables, counters. It can be restored."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import CellType, FunctionType, ModuleType
from typing import Any

from lpkit_conformance.instruments.author_lines import is_authors

CONTAINERS = (dict, list, set, deque)
CACHED = type(functools.cache(len))

MOST_ITEMS = 100
"""Items of a container that are searched for further containers; longer containers are tables of plain values."""


class ModuleState:
    """The current module-level and class-level state of a class's own modules.

    Args:
        cls: the class. Its module counts, and the modules of the author's base classes and of the classes that these
            name (a bridge names the class that it wraps); further, what these use of the class's package.
        of: these modules and classes instead.
    """

    def __init__(self, cls: Any, of: Sequence[Any] | None = None) -> None:
        self._cls = cls
        self._owners = tuple(owners(cls) if of is None else of)
        self._names = [(owner, dict(vars(owner))) for owner in self._owners]
        named = [value for _, names in self._names for name, value in names.items() if not _is_pythons(name, value)]
        self._containers: list[Any] = []
        self._contents: list[Any] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._caches: list[Any] = []
        for value in _reached(named, {getattr(owner, "__module__", owner.__name__) for owner in self._owners}):
            if isinstance(value, CACHED):
                self._caches.append(value)
            elif isinstance(value, CellType):
                self._cells.append((value, value.cell_contents))
            else:
                plain = next(kind for kind in CONTAINERS if isinstance(value, kind))
                self._containers.append(value)
                self._contents.append(plain(value))
        # One comparison of two lists: a package may hold hundreds of tables, and they are compared around each program.
        self._live = [*(vars(owner) for owner, _ in self._names), *self._containers]
        self._held = [*(names for _, names in self._names), *self._contents]

    @classmethod
    def of(cls, plugin: Any) -> ModuleState:
        """The state before the first use of a class in this process that asked for it."""
        name = f"{getattr(plugin, '__module__', '')}.{getattr(plugin, '__qualname__', id(plugin))}"
        kept = _states.get(name)
        if kept is None or kept[0] is not plugin:
            kept = _states[name] = plugin, cls(plugin)
        return kept[1]

    def now(self) -> ModuleState:
        """Return the state at this moment."""
        return ModuleState(self._cls, self._owners)

    def unchanged(self) -> bool:
        """Return True if all names and containers hold what they held, and no cache holds anything."""
        try:
            return (
                self._live == self._held
                and all(cell.cell_contents is value for cell, value in self._cells)
                and not any(cached.cache_info().currsize for cached in self._caches)
            )
        except Exception:  # two tensors have no single answer
            return False

    def restore(self) -> None:
        """Put names and the contents of containers back, and empty what ``functools`` caches."""
        for owner, names in self._names:
            if _equal(vars(owner), names):
                continue
            # Python does not set the name of a submodule again that it has imported once.
            for name in [name for name, value in vars(owner).items() if not isinstance(value, ModuleType)]:
                if name not in names:
                    delattr(owner, name)
            for name, value in names.items():
                if vars(owner).get(name, _states) is not value:
                    setattr(owner, name, value)
        for cached in self._caches:
            cached.cache_clear()
        for cell, value in self._cells:
            cell.cell_contents = value
        for container, contents in zip(self._containers, self._contents, strict=True):
            if not _equal(container, contents):
                container.clear()
                (container.extend if isinstance(container, list | deque) else container.update)(contents)


_states: dict[str, tuple[Any, ModuleState]] = {}


def _equal(first: Any, second: Any) -> bool:
    with contextlib.suppress(Exception):  # two tensors have no single answer
        return bool(first == second)
    return False


def _is_pythons(name: str, value: Any) -> bool:
    return name.startswith("__") and not isinstance(value, FunctionType)


def _reached(values: Iterable[Any], modules: set[str]) -> Iterator[Any]:
    """Yield the containers, closures and caches that these values lead to.

    The way leads through containers, defaults and variables of functions, and attributes of objects whose classes the
    author's ``modules`` define.
    """
    seen: dict[int, Any] = {}
    stack = list(values)
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, CONTAINERS):
            yield value
            items = [*value.values()] if isinstance(value, dict) else [*value]
            stack += items if len(items) <= MOST_ITEMS else ()
        elif isinstance(value, CACHED):
            yield value
            stack.append(value.__wrapped__)
        elif isinstance(value, staticmethod | classmethod):
            stack.append(value.__func__)
        elif isinstance(value, FunctionType) and value.__module__ in modules:
            stack += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # a cell without contents
                    stack.append(cell.cell_contents)
                    yield cell
        elif type(value).__module__ in modules and not isinstance(value, type) and hasattr(value, "__dict__"):
            stack.append(vars(value))


def owners(cls: Any) -> Iterator[Any]:
    """The author's modules, and the classes that they define."""
    led_to = _led_to(_modules_used(cls), str(getattr(cls, "__module__", "")).partition(".")[0])
    for name in [name for name in list(sys.modules) if name in led_to]:
        module = sys.modules[name]
        if isinstance(module, ModuleType) and is_authors(getattr(module, "__file__", None) or "<none>"):
            yield module
            yield from (
                value for value in list(vars(module).values()) if isinstance(value, type) and value.__module__ == name
            )


def _led_to(names: Iterable[str], package: str) -> set[str]:
    """Return these modules, and those of the package that they import, or take a class, a function or an object from.

    A package may have hundreds of modules, as a company's or a test suite has, and the state of a plugin is looked at
    around each program.
    """
    reached: set[str] = set()
    stack = list(names)
    while stack:
        module = sys.modules.get(name := stack.pop())
        if name not in reached and isinstance(module, ModuleType):
            reached.add(name)
            for value in list(vars(module).values()):
                led = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
                stack += [led] if isinstance(led, str) and led.partition(".")[0] == package else []
    return reached


def _modules_used(cls: Any) -> Iterator[str]:
    """Modules of the base classes, and of the classes that they name, as a bridge does; recursively."""
    for base in getattr(cls, "__mro__", ()):
        yield base.__module__
        for value in vars(base).values():
            if isinstance(value, type):
                yield from (named.__module__ for named in value.__mro__)
