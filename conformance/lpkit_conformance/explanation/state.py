"""The state of a plugin, by the names that its author uses: attributes, entries of containers, function variables."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import random
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeVar

import numpy as np
import torch
from lpkit import Params

from lpkit_conformance.instruments.author_lines import is_authors
from lpkit_conformance.instruments.module_state import CACHED

T = TypeVar("T")

MISSING: Final = object()
"""In place of a value that is not there."""

ABSENT: Final = "missing"
"""The text of a value that is not there."""

MOST_PARTS = 32
"""Parts of one value that are tried, each in a run of its own."""

MOST_LEVELS = 5

MOST_TEXT = 200
"""Characters of parameters in a text."""

ENTRY = "[#]"
"""The entry of the request's own row or slot, in a name."""

CALLABLES: Final = "self._calls"
"""The callables of ``lpkit.AdapterLogitsProcessor``: only what is inside them is the author's."""

MOST_DEPTH, MOST_ENTRIES = 3, 4096
"""Of a container that is followed entry by entry."""

Keys = tuple[Any, ...]
"""Keys from a container to one of its parts; a field of an object is ``.name``."""

Parts = dict[Keys, Any]
"""What can be compared of a value's parts, by their keys."""

GENERATORS = (random.Random, torch.Generator)

DATA = (dict, list, set, int, float, str, bool, tuple, type(None), torch.Tensor, np.ndarray, *GENERATORS)
"""Types of values that modules and classes keep for instances."""

_KEEPING: Final = frozenset(DATA)
_FUNCTIONS: Final = frozenset((FunctionType, MethodType, staticmethod, classmethod))


class _Slots:
    """The attributes of an object with ``__slots__``, as those of other objects are in a dict."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def get(self, name: str, default: Any) -> Any:
        return getattr(self._owner, name, default)

    def items(self) -> list[tuple[str, Any]]:
        names = [name for cls in type(self._owner).__mro__ for name in getattr(cls, "__slots__", ())]
        return [(name, getattr(self._owner, name)) for name in names if hasattr(self._owner, name)]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)

    def pop(self, name: str, default: Any) -> None:
        delattr(self._owner, name)


class State:
    """The parts of a value, by the names that the author uses: attributes, entries, variables of a function.

    Attributes:
        places: by name, the object and the key that hold each.
        home: the object that gets parts that are missing.
        holders: the class or the module, and its name, of an object whose attribute is a part.
    """

    def __init__(self, home: Any = None) -> None:
        self.home = home
        self.places: dict[str, tuple[Any, Any]] = {}
        self.holders: dict[str, tuple[Any, str]] = {}
        self._copies: dict[str, Any] = {}

    @classmethod
    def of(cls, processor: Any, shared: Sequence[Any]) -> State:
        """Return the parts of an instance, and the data of these modules and classes."""
        state = cls()
        state.add_attributes("self", processor)
        modules = {getattr(owner, "__module__", owner.__name__) for owner in shared}
        for owner in shared:
            for name, value in vars(owner).items():
                kind = type(value)  # a package may have thousands of names
                kept = not name.startswith("__") if kind in _KEEPING else kind is CACHED
                shown = name if isinstance(owner, ModuleType) else f"{owner.__name__}.{name}"
                if kept or (kind in _FUNCTIONS and defaults(value)):
                    state.places[shown] = owner, name
                elif kind.__module__ in modules and not isinstance(value, type) and hasattr(value, "__dict__"):
                    state.places |= {f"{shown}.{part}": (vars(value), part) for part in vars(value)}
                    state.holders |= {f"{shown}.{part}": (owner, name) for part in vars(value)}
        return state

    def get(self, name: str) -> Any:
        if name in self._copies or name not in self.places:
            return self._copies.get(name, MISSING)
        owner, key = self.places[name]
        if isinstance(owner, CellType):
            return owner.cell_contents
        if isinstance(owner, type | ModuleType):
            value = vars(owner)[key]
            return cached(value) if isinstance(value, CACHED) else defaults(value) or value
        return owner.get(key, MISSING) if isinstance(owner, dict | _Slots) else owner[key]

    def copied(self) -> State:
        """Return the same with the values as they are now."""
        twin = State(self.home)
        twin.places = dict(self.places)
        twin._copies = {name: _copied(self.get(name)) for name in self.places}
        return twin

    def put(self, name: str, source: State) -> Callable[[], object]:
        """Take a part over from ``source``, also if one of the two lacks it; return what undoes it."""
        self.places.setdefault(name, (self.home, source.places.get(name, (None, None))[1]))
        return self.put_value(name, source.get(name))

    def put_value(self, name: str, value: Any) -> Callable[[], object]:
        """Set a part, and return what undoes it: the author's modules may hold the same object."""
        owner, key = self.places[name]
        if isinstance(owner, CellType):
            before = owner.cell_contents
            owner.cell_contents = value
            return lambda: setattr(owner, "cell_contents", before)
        if isinstance(owner, type | ModuleType):
            made = vars(owner)[key]
            function = getattr(made, "__func__", made)
            if isinstance(made, CACHED):
                made.cache_clear()
                return made.cache_clear
            if defaults(made):
                before, function.__defaults__ = function.__defaults__, tuple(value)
                return lambda: setattr(function, "__defaults__", before)
            setattr(owner, key, value)
            return lambda: setattr(owner, key, made)
        held = owner.get(key, MISSING) if isinstance(owner, dict | _Slots) else owner[key]
        held = _copied(held) if isinstance(owner, torch.Tensor | np.ndarray) else held  # a view of the entry
        _set(owner, key, value)
        return lambda: _set(owner, key, held)

    def add_attributes(self, path: str, owner: Any) -> None:
        self.home = _home(owner)
        for name, value in self.home.items():
            if not type(value).__module__.startswith("lpkit."):
                self.places[f"{path}.{name}"] = self.home, name


def _set(owner: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        owner.pop(key, None)
    else:
        owner[key] = value


def state_of(path: str, value: Any, position: int) -> State:
    """Return the parts of a value; of lists and arrays only the entry at ``position``."""
    parts = State(value)
    if isinstance(value, dict):
        parts.places = {f"{path}[{key!r}]": (value, key) for key in value}
    elif isinstance(value, list | torch.Tensor | np.ndarray):
        if getattr(value, "ndim", 1) > 0 and 0 <= position < len(value):
            parts.places = {path + ENTRY: (value, position)}
    elif isinstance(value, tuple):  # only what can be set back: inside the author's objects
        fields = [f".{name}" for name in getattr(value, "_fields", ())] or [
            f"[{number}]" for number in range(len(value))
        ]
        for name, part in zip(fields, value, strict=True):
            if is_authors_object(part) and not isinstance(part, tuple):
                inner = state_of(path + name, part, position)
                parts.home = inner.home
                parts.places |= inner.places
    elif isinstance(value, functools.partial):
        return state_of(path, value.func, position)
    elif isinstance(value, MethodType):
        parts.add_attributes("self", value.__self__)
    elif isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        parts.places = {name: (cell, None) for name, cell in cells if name != "self"}
    elif (hasattr(value, "__dict__") or has_slots(value)) and not isinstance(value, Params):  # which never change
        parts.add_attributes("self" if callable(value) else path, value)
    return parts


def kind_of(owner: Any, key: str) -> str:
    """Return what an instance shares: a name of a class or a module, a function's defaults, or its cache."""
    value = vars(owner)[key]
    if isinstance(value, CACHED):
        return "cache"
    return "default" if defaults(value) else "class" if isinstance(owner, type) else "module"


def _home(owner: Any) -> Any:
    return vars(owner) if hasattr(owner, "__dict__") else _Slots(owner)


def attributes(owner: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object, with or without ``__slots__``."""
    return list(_home(owner).items())


def getattr_along(owner: Any, names: Iterable[str]) -> Any:
    """Return the attribute of an attribute, and so on; MISSING if one is not there."""
    return functools.reduce(lambda value, name: getattr(value, name, MISSING), names, owner)


def has_slots(value: Any) -> bool:
    return not isinstance(value, DATA) and hasattr(value, "__slots__") and not isinstance(value, type)


def leaves(parts: State, depth: int = MOST_LEVELS) -> Iterator[tuple[State, str]]:
    """Yield the parts that are data, those of callables and objects included."""
    for name in list(parts.places)[:MOST_PARTS]:
        value = parts.get(name)
        if isinstance(value, DATA) and not _holds_objects(value):
            yield parts, name
        elif depth:
            yield from leaves(state_of(name, value, 0), depth - 1)


def _holds_objects(value: Any) -> bool:
    """Return True if a container, or a tuple in it, holds callables or the author's objects."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(
        _holds_objects(part) if isinstance(part, tuple) else callable(part) or is_authors_object(part) for part in parts
    )


def defaults(function: Any) -> list[Any]:
    """Return a function's default values, as they are now, if some can change; else nothing."""
    values = getattr(getattr(function, "__func__", function), "__defaults__", None) or ()
    return [_copied(value) for value in values] if any(isinstance(value, list | dict | set) for value in values) else []


def changed_default(function: Any, before: Sequence[Any], after: Sequence[Any]) -> str:
    """Return the first argument whose default value has changed; empty if none has."""
    code = getattr(function, "__func__", function).__code__
    names = code.co_varnames[: code.co_argcount][-len(after) :]
    return next((name for name, *values in zip(names, before, after, strict=True) if not same(*values)), "")


def cached(function: Any) -> list[Any]:
    """Return what ``functools`` keeps for a function, containers as they are now."""
    kept = [item for item in gc.get_referents(function) if isinstance(item, DATA) and item is not vars(function)]
    values = [value for item in kept for value in (item.values() if isinstance(item, dict) else [item])]
    return [_copied(value, whole=False) for value in values]


def _copied(value: Any, whole: bool = True) -> Any:
    """Return a container's or an array's content as it is now; ``whole``: that of the author's objects, too."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict | list | set | np.ndarray):
        return value.copy()
    if whole and hasattr(value, "__dict__") and is_authors_object(value):
        with contextlib.suppress(Exception):  # an object that cannot be copied
            twin = copy.copy(value) if not hasattr(value, "__del__") else _without_finalizer(value)
            vars(twin).update({name: _copied(part, whole=False) for name, part in vars(value).items()})
            return twin
    return value


def _without_finalizer(value: T) -> T:
    """Return an object with the same attributes that closes nothing when it goes, and keeps the original open."""
    cls = type(value)
    names = {"__module__": cls.__module__, "__del__": lambda self, original=value: None}
    twin: T = object.__new__(type(cls.__name__, (cls,), names))
    vars(twin).update(vars(value))
    return twin


def content(value: Any) -> Any:
    """Return what can be compared: the state of a generator of random numbers, anything else itself."""
    if isinstance(value, GENERATORS):
        return value.getstate() if isinstance(value, random.Random) else value.get_state()
    return value


def parts_of(value: Any, path: Keys = ()) -> Parts:
    """Return what is compared with a later time: of a value, and of its parts by their keys."""
    value = content(value)
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.numpy() if value.dtype != torch.bfloat16 else value.float().numpy()
    if isinstance(value, np.ndarray):
        if value.ndim == 0 or len(value) > MOST_ENTRIES:
            return {path: value.tobytes()}
        rows = value.tolist() if value.ndim == 1 else [row.tobytes() for row in value]
        return {path: value.shape, **{(*path, number): row for number, row in enumerate(rows)}}
    items: Iterable[tuple[Any, Any]] | None = None
    if size_of(value) <= MOST_ENTRIES and len(path) < MOST_DEPTH:
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        elif is_authors_object(value):
            items = ((f".{name}", part) for name, part in attributes(value))
    if items is None:
        return {path: repr(value)}
    parts: Parts = {path: type(value)}
    for key, part in items:
        parts |= parts_of(part, (*path, key))
    return parts


def is_authors_object(value: Any) -> bool:
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    return bool(file) and not isinstance(value, type) and is_authors(file)


def same(left: Any, right: Any) -> bool:
    left, right = content(left), content(right)
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.shape == right.shape and bool(
            ((left == right) | (left != left) & (right != right)).all()
        )  # NaN, too
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return bool(np.array_equal(left, right))
    if type(left) is type(right) and isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if type(left) is type(right) and isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    try:
        return left is right or bool(left == right)
    except Exception:  # objects of the plugin may refuse to be compared
        return False


def size_of(value: Any) -> int:
    """Return the number of entries of a container or an array; 0 for anything else."""
    sized = isinstance(value, list | tuple | dict | torch.Tensor | np.ndarray) and getattr(value, "ndim", 1) > 0
    return len(value) if sized else 0


def short_texts(left: Any, right: Any) -> tuple[str, str]:
    """Return two different values as short texts; where these are equal, the texts of the first parts that differ."""
    texts = short_text(left), short_text(right)
    if texts[0] != texts[1] or type(left) is not type(right) or not isinstance(left, list | tuple):
        return texts
    if len(left) != len(right):
        return f"{texts[0]} with {len(left)} entries", f"{texts[1]} with {len(right)} entries"
    return next((short_texts(*pair) for pair in zip(left, right, strict=True) if not same(*pair)), texts)


def short_text(value: Any) -> str:
    if value is MISSING:
        return ABSENT
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return str(value.item()) if value.ndim == 0 else ""
    text = repr(value)[:MOST_TEXT] if isinstance(value, Params) else reprlib.repr(value)
    return "" if re.search(r"object at|[<>]", text) else text
