"""What a plugin's modules hold besides their code: caches, tables, counters. It can be put back to what it was."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
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

    def changed(self) -> tuple[str, ...]:
        """What holds something else now: ``Class.name (file.py:line)``, as far as the line is known."""
        before = {id(container): contents for container, contents in self._contents}
        return tuple(
            f"`{owner.__name__}.{name}`{_line(owner, name)}"
            for owner, names in self._names
            for name, value in vars(owner).items()
            if not name.startswith("__")
            and not isinstance(value, ModuleType)
            and (name not in names or value is not names[name] or not _same(value, before.get(id(value), value)))
        )

    def restore(self) -> None:
        """Put names and the contents of containers back, and empty what ``functools`` caches."""
        for owner, names in self._names:
            # Python does not set the name of a submodule again that it has imported once.
            for name in [name for name, value in vars(owner).items() if not isinstance(value, ModuleType)]:
                if name not in names:
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
    if one is other:
        return True
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(value is other[key] for key, value in one.items())
    if isinstance(one, set):
        return bool(one == other)
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _line(owner: Any, name: str) -> str:
    """`` (file.py:line)`` of the first statement in a class or module that gives ``name`` a value, or empty."""
    try:
        lines, first = inspect.getsourcelines(owner)
        body = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError):
        return ""
    if isinstance(owner, type):
        body = next((node.body for node in body if isinstance(node, ast.ClassDef)), [])
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return f" ({Path(inspect.getsourcefile(owner) or '').name}:{max(first, 1) + node.lineno - 1})"
    return ""


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
