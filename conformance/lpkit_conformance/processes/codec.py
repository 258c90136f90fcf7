"""Dataclasses as JSON data and back, by the types of their fields: jobs, events and answers of children, saved files.

A field may have its own form: functions to JSON and back, as ``form`` in its metadata. So may a class, with methods
``to_json`` and ``from_json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return a value as JSON data."""
    if hasattr(value, "from_json"):
        return value.to_json()
    if is_dataclass(value):
        return {item.name: _form(item, 0)(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return [encode(item) for item in value] if isinstance(value, tuple | list | frozenset) else value


def decode(kind: type[T], data: Any) -> T:
    """Return the value of this type; inverse of :func:`encode`.

    A missing field has its default, and other keys are ignored.
    """
    value: T = _decode(kind, data)
    return value


def _decode(kind: Any, data: Any) -> Any:
    if data is None:
        return None
    if hasattr(kind, "from_json"):
        return kind.from_json(data)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{item.name: _form(item, 1, kind)(data[item.name]) for item in fields(kind) if item.name in data})
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode(next(arg for arg in args if arg is not NoneType), data)
    if origin is tuple and args[-1] is not ...:
        return tuple(map(_decode, args, data))
    if origin in (tuple, list, frozenset):
        return origin(_decode(args[0], item) for item in data)
    return {key: _decode(args[1], item) for key, item in data.items()} if origin in (dict, Mapping) else data


def _form(item: Field[Any], way: int, kind: type | None = None) -> Callable[[Any], Any]:
    """Return a field's function to JSON (0) or back (1)."""
    if form := item.metadata.get("form"):
        return lambda data: None if data is None else form[way](data)
    return encode if kind is None else partial(_decode, _hints(kind)[item.name])


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
