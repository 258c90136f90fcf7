"""A processor's arguments as callers outside vLLM write them: by field name, or by key of ``extra_args``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpkit._nearest import suggest


def extra_args_of(cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``extra_args`` of a request to ``cls``.

    Args:
        cls: a processor's class. Names are checked against the fields of ``Params`` or the ``keys`` of a bridge. A
            class without either accepts any name.
        given: values by field name (``repetition``) or by key (``penalties_repetition``).

    Returns:
        ``extra_args``: values by key.

    Raises:
        ValueError: an unknown name, with the nearest known name; or a value given twice.
    """
    params = getattr(cls, "Params", None)
    keys = {key: key for key in getattr(cls, "keys", ())} if params is None else params.keys()
    if params is None and not keys:
        return dict(given)
    by_field = {field: key for key, field in keys.items()}
    extra_args: dict[str, Any] = {}
    for name, value in given.items():
        key = name if name in keys else by_field.get(name)
        if key is None:
            raise ValueError(f"{cls.__qualname__} has no parameter {name!r}; {suggest(name, [*by_field, *keys])}")
        if key in extra_args:
            raise ValueError(f"{cls.__qualname__}: {key} is given twice, by its key and by its field's name")
        extra_args[key] = value
    return extra_args
