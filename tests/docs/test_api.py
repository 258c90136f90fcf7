"""Every public name documents its arguments and its result."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from site_sources import module

api = module("_site/public_names.py")

PUBLIC: dict[str, Any] = api.public_names()
GIVES = re.compile(r"\b([Rr]eturns?|Yields?)\b|\A(Make|True if)\b")
NOT_OURS = {"lpkit.Field"}
"""Pydantic's, with its own documentation."""
OF_VLLM = {"lpkit.sampling_params.SamplingParams"}
"""Its many fields are vLLM's, and vLLM documents them."""


def callables() -> Iterator[tuple[str, Any, str]]:
    """(name, function, docstring) of each public function, method and constructor of ours that people call."""
    for name, value in PUBLIC.items():
        if name in NOT_OURS:
            continue
        if inspect.isfunction(value):
            yield name, value, inspect.getdoc(value) or ""
        elif inspect.isclass(value):
            yield from members(name, value)


def members(name: str, cls: type) -> Iterator[tuple[str, Any, str]]:
    plain = issubclass(cls, enum.Enum | BaseException) or getattr(cls, "_is_protocol", False)
    if name in api.DECLARATIONS:
        yield name, cls.__init__, inspect.getdoc(cls) or ""
        return
    init = getattr(cls, "__init__", None)
    if (
        name not in {*api.MADE_BY_ENGINES, *OF_VLLM}
        and not plain
        and inspect.isfunction(init)
        and "__init__" in vars(cls)
    ):
        yield name, init, inspect.getdoc(cls) or ""
    for owner in cls.__mro__:
        if not owner.__module__.startswith("lpkit") or (".interfaces." in owner.__module__ and owner is not cls):
            continue
        for key, member in vars(owner).items():
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not key.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{key}", function, inspect.getdoc(getattr(owner, key)) or ""  # perhaps its base's


CALLABLES = {name: (function, text) for name, function, text in callables()}


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if callable(value)])
def test_a_public_name_has_a_docstring(name: str) -> None:
    value = PUBLIC[name]
    assert not (inspect.isclass(value) or inspect.isfunction(value)) or len(inspect.getdoc(value) or "") > 20


@pytest.mark.parametrize("name", CALLABLES)
def test_its_docstring_names_every_argument_and_what_it_gives(name: str) -> None:
    function, text = CALLABLES[name]
    signature = inspect.signature(function)
    given = [item for item in signature.parameters if item not in ("self", "cls")]
    missing = [
        item for item in given if not re.search(rf"``[^`]*\b{item}\b[^`]*``|^[\w, *]*\b{item}\b[\w, *]*:", text, re.M)
    ]
    assert text, "no docstring"
    assert not missing
    nothing = signature.return_annotation in (None, "None", inspect.Signature.empty)
    assert nothing or GIVES.search(text), "does not say what it returns"
