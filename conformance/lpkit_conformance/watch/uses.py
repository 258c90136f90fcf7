"""Who uses a processor: whose rows it may change, as far as that can be known from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lpkit.portable.base import may_use

Judge = Callable[[Any], "bool | None"]
"""SamplingParams -> False if the request does not use the processor; else it may, or that cannot be known."""


def name_of(processor: Any) -> str:
    """``module:Class``, as vLLM is told of it."""
    cls = type(processor)
    return f"{cls.__module__}:{cls.__qualname__}"


def judge(processor: Any, arguments: Mapping[str, tuple[str, ...]]) -> Judge:
    """How to tell whether a request uses this processor.

    Args:
        processor: any instance. Classes of lpkit say which arguments they need.
        arguments: by class, the ``extra_args`` that switch it on, for classes that say nothing.
    """
    keys = arguments.get(name_of(processor))
    if keys is None:
        return lambda params: may_use(processor, params)
    wanted = frozenset(keys)
    return lambda params: bool(wanted & set(params.extra_args or ()))
